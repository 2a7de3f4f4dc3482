// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bathys::convert {

// What a folder of shards holds: sources, config, tensors, bytes by kind and by part, and by part what the rank that
// holds most would hold in layouts of one model copy over 1 to 64 ranks (those that cannot share the model are left
// out).  Reads index.h5 and the structure of every shard file, no payload.
//   memory_gib  of a rank, when above 0: says of each layout whether the weights fit
//   throws Error(bad_input) as verify does for structure
std::string inspect_text(const std::string& shard_folder, double memory_gib = 0);
// The same as one JSON object (docs/file_formats.md), with every dataset.
std::string inspect_json(const std::string& shard_folder, double memory_gib = 0);

}  // namespace bathys::convert
