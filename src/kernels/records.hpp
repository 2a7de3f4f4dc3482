// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cache.hpp"
#include "kernels/lanes.hpp"
#include "numerics/quantize.hpp"

// Cache records to and from values.  Each decoded value is code * scale, which a bf16 holds exactly, so nothing is
// rounded here.
namespace bathys::kernels {

// Where a group lives in its source's pages.
BATHYS_FUNCTION std::uint8_t* group_record(const SourcePages& pages, int sequence, std::int64_t group, int head_dim) {
  return pages.pages(pages.first_page(sequence) + group / kGroupsPerPage) +
         group % kGroupsPerPage * group_record_bytes(head_dim);
}
BATHYS_FUNCTION std::uint8_t* key_record(const SourcePages& pages, int sequence, std::int64_t group, int head_dim,
                                         int index_head_dim) {
  return pages.pages(pages.first_page(sequence) + group / kGroupsPerPage) +
         kGroupsPerPage * group_record_bytes(head_dim) + group % kGroupsPerPage * key_record_bytes(index_head_dim);
}

// 16 E4M3 codes.  On the host by way of half precision: its exponent is one bit wider, so a shift gives value * 2^-8,
// subnormals included.  The NaN code does not occur: the quantizer marks a non-finite group by its scale.
BATHYS_FUNCTION Lanes decode_e4m3(const std::uint8_t* codes) {
#if defined(BATHYS_LANES_AVX2)
  const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
  const __m256i half = _mm256_or_si256(sign, _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7f)), 7));
  const __m256 unit = _mm256_set1_ps(256.0F);
  return {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(half)), unit),
          _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1)), unit)};
#else
  float v[kLanes];
  for (int i = 0; i < kLanes; ++i) v[i] = numerics::e4m3_value(codes[i]);
  return load_lanes(v);
#endif
}

// 16 E2M1 codes out of 8 bytes, the even element in the low nibble.  On the host two byte shuffles look up the upper 16
// bits of the float32.
BATHYS_FUNCTION Lanes decode_e2m1(const std::uint8_t* pairs) {
#if defined(BATHYS_LANES_AVX2)
  const __m128i packed = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(pairs));
  const __m128i mask = _mm_set1_epi8(0xf);
  const __m128i code = _mm_unpacklo_epi8(_mm_and_si128(packed, mask), _mm_and_si128(_mm_srli_epi16(packed, 4), mask));
  const __m128i high = _mm_shuffle_epi8(_mm_setr_epi8(0, 0x3f, 0x3f, 0x3f, 0x40, 0x40, 0x40, 0x40, -0x80, -0x41, -0x41,
                                                      -0x41, -0x40, -0x40, -0x40, -0x40),
                                        code);
  const __m128i low = _mm_shuffle_epi8(
      _mm_setr_epi8(0, 0, -0x80, -0x40, 0, 0x40, -0x80, -0x40, 0, 0, -0x80, -0x40, 0, 0x40, -0x80, -0x40), code);
  const auto widen = [](__m128i half) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  };
  return {widen(_mm_unpacklo_epi8(low, high)), widen(_mm_unpackhi_epi8(low, high))};
#else
  float v[kLanes];
  for (int i = 0; i < kLanes / 2; ++i) {
    v[2 * i] = numerics::e2m1_value(pairs[i] & 0xfU);
    v[2 * i + 1] = numerics::e2m1_value(static_cast<std::uint8_t>(pairs[i] >> 4));
  }
  return load_lanes(v);
#endif
}

// Window record -> d values, float or bf16 (which loses nothing).
template <class Value>
BATHYS_FUNCTION void decode_window(const std::uint8_t* record, int head_dim, Value* out) {
  for (int c = 0; c < head_dim; c += kLanes) {
    const Lanes scale = broadcast_lanes(numerics::e8m0_value(record[head_dim + c / 32]));
    store_lanes(out + c, multiply_lanes(decode_e4m3(record + c), scale));
  }
}
// Compressed KV record -> d values, float or bf16 (which loses nothing).
template <class Value>
BATHYS_FUNCTION void decode_group(const std::uint8_t* record, int head_dim, Value* out) {
  const std::uint8_t* scales = record + head_dim / 2;
  for (int c = 0; c < head_dim; c += kLanes) {
    store_lanes(out + c,
                multiply_lanes(decode_e2m1(record + c / 2), broadcast_lanes(numerics::e4m3_value(scales[c / 16]))));
  }
}
// Index key record -> id values, float or bf16 (which loses nothing).
template <class Value>
BATHYS_FUNCTION void decode_key(const std::uint8_t* record, int index_head_dim, Value* out) {
  const std::uint8_t* scales = record + index_head_dim / 2;
  for (int c = 0; c < index_head_dim; c += kLanes) {
    store_lanes(out + c,
                multiply_lanes(decode_e2m1(record + c / 2), broadcast_lanes(numerics::e8m0_value(scales[c / 32]))));
  }
}

BATHYS_FUNCTION void encode_window(const bf16* x, int head_dim, std::uint8_t* record) {
  for (int c = 0; c < head_dim; c += 32) {
    record[head_dim + c / 32] =
        numerics::quantize_q8([=](int i) { return static_cast<float>(x[c + i]); }, 32, record + c);
  }
}

namespace detail {
BATHYS_FUNCTION void pack_pairs(const std::uint8_t* codes, int n, std::uint8_t* out) {
  for (int i = 0; i < n / 2; ++i) out[i] = static_cast<std::uint8_t>(codes[2 * i] | (codes[2 * i + 1] << 4));
}
}  // namespace detail

BATHYS_FUNCTION void encode_group(const bf16* x, int head_dim, std::uint8_t* record) {
  std::uint8_t codes[16];
  for (int c = 0; c < head_dim; c += 16) {
    record[head_dim / 2 + c / 16] =
        numerics::quantize_q4x16([=](int i) { return static_cast<float>(x[c + i]); }, 16, codes);
    detail::pack_pairs(codes, 16, record + c / 2);
  }
}
BATHYS_FUNCTION void encode_key(const bf16* x, int index_head_dim, std::uint8_t* record) {
  std::uint8_t codes[32];
  for (int c = 0; c < index_head_dim; c += 32) {
    record[index_head_dim / 2 + c / 32] =
        numerics::quantize_q4x32([=](int i) { return static_cast<float>(x[c + i]); }, 32, codes);
    detail::pack_pairs(codes, 32, record + c / 2);
  }
}

}  // namespace bathys::kernels
