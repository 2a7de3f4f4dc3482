// SPDX-License-Identifier: Apache-2.0
#include "parallel/signals.hpp"

#include "core/error.hpp"

#include <csignal>

namespace bathys::parallel {
namespace {

volatile std::sig_atomic_t stop_flag = 0;

extern "C" void note_stop(int) { stop_flag = 1; }

void handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  require(sigaction(signal, &action, nullptr) == 0, ExitCode::internal, "sigaction({}) failed", signal);
}

}  // namespace

void install_signal_handlers() {
  handle(SIGTERM, note_stop, SA_RESTART);
  handle(SIGUSR1, note_stop, SA_RESTART);
  handle(SIGINT, note_stop, SA_RESTART | static_cast<int>(SA_RESETHAND));  // a second one ends the process
  handle(SIGXFSZ, SIG_IGN, 0);
  handle(SIGPIPE, SIG_IGN, 0);
}

bool stop_requested() noexcept { return stop_flag != 0; }
void end_if_stop_requested(std::string_view waiting_for) {
  require(!stop_requested(), ExitCode::stopped, "stopped by a signal while waiting for {}; run the same command again",
          waiting_for);
}
void request_stop() noexcept { stop_flag = 1; }
void clear_stop_request() noexcept { stop_flag = 0; }

}  // namespace bathys::parallel
