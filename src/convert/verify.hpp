// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace bathys::convert {

struct VerifyOptions {
  bool checksums = true;        // read every byte; otherwise structure alone
  std::string checkpoint = "";  // when given, payload is compared with this checkpoint folder as well
  double progress_s = 5.0;
};

struct VerifyReport {
  std::int64_t files = 0;
  std::int64_t datasets = 0;
  std::uint64_t bytes = 0;       // payload of the model
  std::uint64_t bytes_read = 0;  // payload read and found good
  double seconds = 0;
};

// Checks a folder of shards: the index against the tensor table of its config, every shard file against the index, the
// token map against the tokenizer, every piece of every dataset against its checksum.
//   throws Error(bad_input) at the first fault, naming file, dataset and byte range
VerifyReport verify(const std::string& shard_folder, const VerifyOptions& options = {});

}  // namespace bathys::convert
