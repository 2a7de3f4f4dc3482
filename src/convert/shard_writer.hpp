// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "convert/source_model.hpp"
#include "io/file.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace bathys::convert {

// What the index says of a dataset of the table, before it has an offset and checksums.
io::ShardDataset describe(const catalog::DatasetSpec& spec);

// Called after each piece with the bytes just written.
using Progress = std::function<void(std::uint64_t)>;

// Writes shard `file` of the source's table into `folder`: all its datasets, their attributes and piece checksums,
// under a temporary name until it is whole and durable.  `buffer` has io::kPieceBytes and is all the payload held at a
// time.  The file's bytes depend on the source alone.
//   throws Error(bad_input) for payload that breaks a rule (scale_rules.hpp), as io::fail_write for a full disk or the
//   like
void write_shard(const SourceModel& source, const std::string& folder, const std::string& file,
                 const io::Buffer& buffer, const Progress& progress);

// Whether `folder` holds shard `file` of this very source, whole.  A file that is damaged or of another format is not.
//   throws Error(usage) when it is a sound shard of another model, which must not be overwritten
bool is_complete_shard(const SourceModel& source, const std::string& folder, const std::string& file);

// Adds to `index` what the finished shards say: each dataset's offset and the checksum of its piece checksums, each
// file's size.
void collect_shards(const SourceModel& source, const std::string& folder, io::ShardIndex& index);

}  // namespace bathys::convert
