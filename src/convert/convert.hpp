// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "convert/source_model.hpp"
#include "parallel/collectives.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace bathys::convert {

struct ConvertOptions {
  double progress_s = 5.0;       // seconds between progress lines
  std::function<void()> alive;   // called twice a second, when given
  std::uint64_t mark_bytes = 0;  // payload after which the place in a file is noted; 0: ShardWriteOptions' default
};

struct ConvertReport {
  std::int64_t files = 0;       // files of the model
  std::int64_t files_kept = 0;  // of these, found whole from an earlier run
  std::int64_t datasets = 0;
  std::int64_t tensors = 0;         // of the model
  std::uint64_t bytes_written = 0;  // payload written by this run, on all ranks
  std::uint64_t bytes_resumed = 0;  // payload that an earlier run had written into files that it did not finish
  double seconds = 0;
};

// Converts a checkpoint folder in the released layout (config.json, tokenizer.json, safetensors) into a folder of HDF5
// shards (docs/file_formats.md).  Collective over `world`: each rank writes files of its own, and the output's bytes
// depend on the input alone, not on the number of ranks.  Memory of a rank: headers, small files and three pieces of
// payload, whatever the size of a tensor.
//
// Stopped at any point, the same call goes on, on any number of ranks: shard files appear whole under their names,
// finished ones are kept as long as the checkpoint's files are unchanged (size and modification time), large ones that
// were begun are continued (shard_writer.hpp), and index.h5, without which nothing reads the folder, comes last.
//   throws AgreedError on all ranks: bad_input (a file or tensor of the checkpoint), usage (a config that cannot be, an
//   output folder that cannot be written, is in use or holds another model), stopped (disk full, a signal)
ConvertReport convert(parallel::Collectives& world, const std::string& checkpoint_folder,
                      const std::string& shard_folder, const ConvertOptions& options = {});
// The same from a source that is open already, or synthetic.
ConvertReport convert(parallel::Collectives& world, const SourceModel& source, const std::string& shard_folder,
                      const ConvertOptions& options = {});
// Both by this process alone.
ConvertReport convert(const std::string& checkpoint_folder, const std::string& shard_folder,
                      const ConvertOptions& options = {});
ConvertReport convert(const SourceModel& source, const std::string& shard_folder, const ConvertOptions& options = {});

}  // namespace bathys::convert
