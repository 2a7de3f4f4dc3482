// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace bathys::convert {

// What a folder of shards holds: sources, config, tensors, bytes by kind and by part, and what each of 1, 2, 4, 8 ranks
// of one model copy would hold (counts that cannot share the model are left out).  Reads index.h5 and the structure of
// every shard file, no payload.
//   throws Error(bad_input) as verify does for structure
std::string inspect_text(const std::string& shard_folder);
// The same as one JSON object (docs/file_formats.md), with every dataset.
std::string inspect_json(const std::string& shard_folder);

}  // namespace bathys::convert
