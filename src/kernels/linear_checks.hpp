// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"
#include "kernels/linear.hpp"

// What the public functions of linear.hpp check, whichever body runs behind them.  All throw Error(internal).
namespace bathys::kernels {

inline const char* name_of(WeightKind kind) {
  switch (kind) {
    case WeightKind::fp4:
      return "fp4";
    case WeightKind::fp8:
      return "fp8";
    case WeightKind::bf16:
      return "bf16";
    default:
      return "f32";
  }
}

inline void require_operands(const PackedLinear& w, const Activation& x) {
  require(x.k() == w.k, ExitCode::internal, "a linear of {} inputs is given rows of {}", w.k, x.k());
  const bool fits = w.kind == WeightKind::fp8 || x.is_q8() == (w.kind == WeightKind::fp4);
  require(fits, ExitCode::internal, "{} weights are given {} rows, {} are wanted", name_of(w.kind),
          x.is_q8() ? "q8" : "plain", x.is_q8() ? "plain" : "q8");
  const std::size_t bytes = packed_bytes(w.kind, w.n, w.k) * static_cast<std::size_t>(w.count);
  require(w.data.extent(0) >= bytes, ExitCode::internal, "{} packed {} matrices [{}, {}] have {} bytes, {} are wanted",
          w.count, name_of(w.kind), w.n, w.k, w.data.extent(0), bytes);
}

inline void require_output(const PackedLinear& w, std::int64_t rows, std::size_t y_rows, std::size_t y_columns) {
  require(y_rows >= static_cast<std::size_t>(rows) && y_columns >= static_cast<std::size_t>(w.n), ExitCode::internal,
          "a linear of {} rows and {} outputs is given room for {} rows of {}", rows, w.n, y_rows, y_columns);
}

inline void require_matrix(const PackedLinear& w, std::int64_t matrix) {
  require(matrix >= 0 && matrix < w.count, ExitCode::internal, "matrix {} of a stack of {} is asked for", matrix,
          w.count);
}

inline void require_offsets(const PackedLinear& w, const Vec<const std::int32_t>& offsets) {
  require(offsets.extent(0) == static_cast<std::size_t>(w.count) + 1, ExitCode::internal,
          "{} experts are given {} offsets, one more than experts is wanted", w.count, offsets.extent(0));
}

}  // namespace bathys::kernels
