// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "convert/release_writer.hpp"
#include "parallel/collectives.hpp"

#include <string>

namespace bathys::convert {

// Writes the model of a folder of shards as a checkpoint in the released layout again, every tensor byte for byte as it
// was converted; exported.json says from what.  Each piece is checked against its checksum.  Collective over `world`;
// stopped at any point, the same call goes on.
//   throws AgreedError: bad_input as verify does for the shards, else as write_release
ReleaseReport export_checkpoint(parallel::Collectives& world, const std::string& shard_folder,
                                const std::string& checkpoint_folder, const ReleaseOptions& options = {});

}  // namespace bathys::convert
