// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "convert/source_model.hpp"

#include <cstdint>
#include <string>

namespace bathys::convert {

struct ConvertOptions {
  double progress_s = 5.0;  // seconds between progress lines
};

struct ConvertReport {
  std::int64_t files = 0;       // shard files of the model
  std::int64_t files_kept = 0;  // of these, found whole from an earlier run
  std::int64_t datasets = 0;
  std::int64_t tensors = 0;         // of the model
  std::uint64_t bytes_written = 0;  // payload written by this run
  double seconds = 0;
};

// Converts a checkpoint folder in the released layout (config.json, tokenizer.json, safetensors) into a folder of HDF5
// shards (docs/file_formats.md).  The output's bytes depend on the input alone.  Memory: headers, small files and one
// piece of payload, whatever the size of a tensor.
//
// Stopped at any point, the same command goes on: shard files appear whole under their names, finished ones are kept as
// long as the checkpoint's files are unchanged (size and modification time), and index.h5, without which nothing reads
// the folder, comes last.
//   throws Error: bad_input (a file or tensor of the checkpoint), usage (a config that cannot be, an output folder that
//   cannot be written, is in use or holds another model), stopped (disk full)
ConvertReport convert(const std::string& checkpoint_folder, const std::string& shard_folder,
                      const ConvertOptions& options = {});
// The same from a source that is open already, or synthetic.
ConvertReport convert(const SourceModel& source, const std::string& shard_folder, const ConvertOptions& options = {});

}  // namespace bathys::convert
