// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "convert/source_model.hpp"

#include <cstdint>
#include <string>

namespace bathys::convert {

struct SynthOptions {
  std::string tokenizer;  // tokenizer.json to give the model; empty: a synthetic one (synthetic_tokenizer.hpp)
  std::uint64_t seed = 0;
};

struct SynthReport {
  std::int64_t files = 0;
  std::int64_t files_kept = 0;  // of these, found whole from an earlier run
  std::uint64_t bytes_written = 0;
  double seconds = 0;
};

// A model with the config in the file `config_path` (either form) and synthetic weights (catalog/synthetic.hpp).
// convert() writes it as shards.
//   throws Error(usage) for a config that cannot be, Error(bad_input) for files, and for a tokenizer of another model
SourceModel synthesize(const std::string& config_path, const SynthOptions& options);

// Writes a synthetic model as a checkpoint in the released layout: config.json, tokenizer.json, safetensors files and,
// last, their index.  synthetic.json says how it was made.  Stopped at any point, the same call goes on; files appear
// whole.
//   throws Error(usage) for a folder that holds anything else, or as io::fail_write
SynthReport write_checkpoint(const SourceModel& model, const std::string& folder, double progress_s = 5.0);

}  // namespace bathys::convert
