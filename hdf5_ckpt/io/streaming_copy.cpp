// SPDX-License-Identifier: Apache-2.0
#include "hdf5_ckpt/io/streaming_copy.h"

#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace ddp::ckpt {

#if defined(__SSE2__)

namespace {

constexpr std::size_t kLine = 64;  // bytes per memory transaction
constexpr std::size_t kPage = 4096;
constexpr std::size_t kPagesAtOnce = 4;
constexpr std::size_t kLeast = 16 << 10;

void stream_line(std::byte* to, const std::byte* from) noexcept {
  const auto* const source = reinterpret_cast<const __m128i*>(from);
  auto* const target = reinterpret_cast<__m128i*>(to);
  const __m128i a = _mm_loadu_si128(source);
  const __m128i b = _mm_loadu_si128(source + 1);
  const __m128i c = _mm_loadu_si128(source + 2);
  const __m128i d = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, a);
  _mm_stream_si128(target + 1, b);
  _mm_stream_si128(target + 2, c);
  _mm_stream_si128(target + 3, d);
}

// A CPU prefetches within one page, so copying several pages at a time makes it prefetch more.
void stream_pages(std::byte* to, const std::byte* from) noexcept {
  for (std::size_t at = 0; at < kPage; at += kLine)
    for (std::size_t page = 0; page < kPagesAtOnce; ++page)
      stream_line(to + page * kPage + at, from + page * kPage + at);
}

}  // namespace

void streaming_copy(std::byte* to, std::span<const std::byte> from) noexcept {
  std::size_t done = 0;
  if (from.size() >= kLeast) {
    done = (kLine - reinterpret_cast<std::uintptr_t>(to) % kLine) % kLine;
    std::memcpy(to, from.data(), done);
    for (; from.size() - done >= kPagesAtOnce * kPage; done += kPagesAtOnce * kPage)
      stream_pages(to + done, from.data() + done);
    for (; from.size() - done >= kLine; done += kLine) stream_line(to + done, from.data() + done);
    _mm_sfence();  // or later stores might become visible before the copy
  }
  if (done < from.size()) std::memcpy(to + done, from.data() + done, from.size() - done);
}

#else

void streaming_copy(std::byte* to, std::span<const std::byte> from) noexcept {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

#endif

}  // namespace ddp::ckpt
