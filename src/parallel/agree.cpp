// SPDX-License-Identifier: Apache-2.0
#include "parallel/agree.hpp"

#include <new>

namespace bathys::parallel {

Cause cause_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return {e.code(), e.what()};
  } catch (const std::bad_alloc&) {
    return {ExitCode::internal, "out of memory; use more ranks or a smaller --memory"};
  } catch (const std::exception& e) {
    return {ExitCode::internal, fmt::format("internal error: {}", e.what())};
  } catch (...) {
    return {ExitCode::internal, "internal error: an exception without words"};
  }
}

void agree_on(Collectives& group, const std::optional<Cause>& mine) {
  const std::int64_t lowest = group.all_reduce_host(mine ? group.rank() : group.size(), Reduce::min);
  if (lowest == group.size()) return;
  const std::int64_t n_failing = group.all_reduce_host(mine ? 1 : 0, Reduce::sum);
  const int speaker = static_cast<int>(lowest);
  std::int64_t code = mine ? static_cast<std::int64_t>(mine->code) : 0;
  group.broadcast_host(&code, sizeof code, speaker);
  const std::string text = group.broadcast_host(mine ? mine->text : std::string(), speaker);
  const bool common = n_failing == group.size();  // the rank's number would say nothing
  throw AgreedError(static_cast<ExitCode>(code), common ? text : fmt::format("rank {}: {}", speaker, text));
}

}  // namespace bathys::parallel
