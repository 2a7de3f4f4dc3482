// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace bathys::parallel {

// SIGTERM, SIGUSR1 and SIGINT ask for a stop at the next step's edge: their handler sets a flag and does nothing
// else.  A second SIGINT ends the process at once.  SIGXFSZ and SIGPIPE are ignored, so that a full quota or a closed
// pipe is a write error with a message.
void install_signal_handlers();

// Whether this process was asked to stop.
[[nodiscard]] bool stop_requested() noexcept;
// For waits that no step ends.  throws Error(stopped), naming what was waited for, when this process was asked to stop
void end_if_stop_requested(std::string_view waiting_for);
// As if a signal had asked this process: another one was.
void request_stop() noexcept;
// Forgets requests; for tests.
void clear_stop_request() noexcept;

}  // namespace bathys::parallel
