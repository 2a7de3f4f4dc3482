// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives.hpp"

#include <memory>

namespace bathys::parallel {

// The group of `host` over NCCL: device calls run on the execution instance's stream and need no fence, host calls go
// to `host`, which also carries NCCL's id to the ranks.  One rank per GPU (require_distinct_devices first: NCCL hangs
// instead of refusing).  Collective.
//   timeout_s: a call or wait() that is not done by then is aborted on the device
//   throws Error(internal) with NCCL's words
[[nodiscard]] std::unique_ptr<Collectives> make_nccl_collectives(std::unique_ptr<Collectives> host, double timeout_s);

}  // namespace bathys::parallel
