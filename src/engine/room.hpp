// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/sequence.hpp"

namespace bathys::engine {

// What sequences take of the caches at their full lengths; each has one state, so that states count sequences.
using Room = model::CacheBlocks;

}  // namespace bathys::engine
