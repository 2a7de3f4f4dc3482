// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

// `bathys bench io`: converting, verifying and loading beside plain copies and reads of the same bytes.
namespace bathys::bench {

struct IoBenchOptions {
  std::string checkpoint;  // folder in the released layout
  std::string scratch;     // folder for a copy and shards; what is written there is removed again
  int repeats = 3;         // of everything, in turns
  bool cold = false;       // ask the kernel to forget the files before each measurement
};

// What is compared.  Seconds are medians over the repeats; both sides move the same bytes.
struct IoBenchLine {
  std::string what;  // "convert", "verify", "load"
  std::string plain;
  std::uint64_t bytes = 0;
  double seconds = 0;
  double plain_seconds = 0;
  [[nodiscard]] double ratio() const { return plain_seconds / seconds; }
};

// Measures on this process alone, prints a line for each pair to `out`, and returns the lines.
//   copy   every file (safetensors for convert, shards for verify and load) through one buffer of 16 MiB to a file that
//          is then synchronized
//   read   every shard file whole, into fresh memory
//   load   every dataset into fresh memory, checksums checked
//   throws as convert does
std::vector<IoBenchLine> bench_io(const IoBenchOptions& options, std::ostream& out);

}  // namespace bathys::bench
