// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"
#include "parallel/collectives.hpp"

#include <exception>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace bathys::parallel {

// An error that every rank of the job throws with the same words: nobody waits for anybody, so the job can end in
// order.
class AgreedError : public Error {
 public:
  using Error::Error;
};

// What an exception has to say, for an exit: an Error's own words and code, 70 for the others.
struct Cause {
  ExitCode code;
  std::string text;
};
[[nodiscard]] Cause cause_of(const std::exception_ptr& error);

// Throws AgreedError on all ranks when any rank has a cause: that of the lowest failing rank, with "rank N: " in front
// when others had none.  Collective.
void agree_on(Collectives& group, const std::optional<Cause>& mine);

// A gate (arguments, config, plan, load, input validation): every rank runs `work`, and all leave with its result or
// with the same AgreedError.  `work` is not collective, or enters its collectives before it can fail.
//   const Config config = agree(world, [&] { return read_config(path); });
template <class Work>
auto agree(Collectives& group, Work&& work) -> std::invoke_result_t<Work> {
  using Result = std::invoke_result_t<Work>;
  std::optional<Cause> cause;
  if constexpr (std::is_void_v<Result>) {
    try {
      work();
    } catch (...) {
      cause = cause_of(std::current_exception());
    }
    agree_on(group, cause);
  } else {
    std::optional<Result> result;
    try {
      result.emplace(work());
    } catch (...) {
      cause = cause_of(std::current_exception());
    }
    agree_on(group, cause);
    return std::move(*result);
  }
}

}  // namespace bathys::parallel
