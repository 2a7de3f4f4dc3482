// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives.hpp"

#include <cstdint>
#include <functional>
#include <string>

namespace bathys::convert {

struct VerifyOptions {
  bool checksums = true;        // read every byte; otherwise structure alone
  std::string checkpoint = "";  // when given, payload is compared with this checkpoint folder as well
  double progress_s = 5.0;
  std::function<void()> alive;  // called twice a second, when given
};

struct VerifyReport {
  std::int64_t files = 0;
  std::int64_t datasets = 0;
  std::uint64_t bytes = 0;       // payload of the model
  std::uint64_t bytes_read = 0;  // payload read and found good
  double seconds = 0;
};

// Checks a folder of shards: the index against the tensor table of its config, the token map against the tokenizer,
// every shard file against the index, every piece of every dataset against its checksum.  Collective over `world`: each
// rank takes its part of the files, then its part of the pieces.
//   throws AgreedError(bad_input) on all ranks at the first fault in the order of the table, whatever the number of
//   ranks, naming file, dataset and byte range; stopped for a signal
VerifyReport verify(parallel::Collectives& world, const std::string& shard_folder, const VerifyOptions& options = {});
// By this process alone.
VerifyReport verify(const std::string& shard_folder, const VerifyOptions& options = {});

}  // namespace bathys::convert
