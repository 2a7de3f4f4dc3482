// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/pulse.hpp"
#include "parallel/collectives.hpp"

#include <functional>
#include <string_view>

namespace bathys::parallel {

class Watchdog;

// A gate (agree.hpp) at which rank 0 alone works, maybe for long, while the others wait for it.  Each call of the pulse
// that `work` gets counts as progress, on all ranks: a rank that waits in an ordinary collective would be taken for one
// that hangs.  It also tells every rank of a stop that any of them was asked for.  `work` is not collective.  `phase`
// names it in the watchdog's line; `watchdog` may be null.
//   throws AgreedError on all ranks when `work` throws
void lead(Collectives& group, Watchdog* watchdog, std::string_view phase,
          const std::function<void(const Pulse&)>& work);

// The pulse of work that every rank does for itself.
[[nodiscard]] Pulse pulse_of(Watchdog* watchdog, std::string_view phase);

}  // namespace bathys::parallel
