// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "convert/release_writer.hpp"
#include "convert/source_model.hpp"

#include <cstdint>
#include <string>

namespace bathys::convert {

struct SynthOptions {
  std::string tokenizer;  // tokenizer.json to give the model; empty: a synthetic one (synthetic_tokenizer.hpp)
  std::uint64_t seed = 0;
};

// A model with the config in the file `config_path` (either form) and synthetic weights (catalog/synthetic.hpp).
// convert() writes it as shards.
//   throws Error(usage) for a config that cannot be, Error(bad_input) for files, and for a tokenizer of another model
SourceModel synthesize(const std::string& config_path, const SynthOptions& options);

// Writes a synthetic model as a checkpoint in the released layout (release_writer.hpp); synthetic.json says how it was
// made.  Collective over `world`; without it by this process alone.
ReleaseReport write_checkpoint(parallel::Collectives& world, const SourceModel& model, const std::string& folder,
                               const ReleaseOptions& options = {});
ReleaseReport write_checkpoint(const SourceModel& model, const std::string& folder);

}  // namespace bathys::convert
