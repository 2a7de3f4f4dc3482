// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/views.hpp"

#include <cstdint>

namespace bathys::model {

// Watches a model's intermediate values, for tests against captured ones; a model without an observer computes the
// same.  Rows are the step's, in order, when the cone is off.  `name` as in tests/golden/README.md: h_before_engram,
// h_in, attn_in, gate_idx, ...
class Observer {
 public:
  virtual ~Observer() = default;
  // May overwrite the stream (h [n, M*D], pre [n, M]) before the layer's Engram.
  virtual void layer_input(int /*layer*/, const kernels::Mat<kernels::bf16>& /*h*/,
                           const kernels::Mat<float>& /*pre*/) {}
  virtual void tensor(const char* /*name*/, int /*layer*/, const kernels::Mat<const kernels::bf16>& /*value*/) {}
  virtual void tensor(const char* /*name*/, int /*layer*/, const kernels::Mat<const float>& /*value*/) {}
  virtual void tensor(const char* /*name*/, int /*layer*/, const kernels::Mat<const std::int32_t>& /*value*/) {}
  virtual void tensor(const char* /*name*/, int /*layer*/, const kernels::Mat<const std::int64_t>& /*value*/) {}
};

}  // namespace bathys::model
