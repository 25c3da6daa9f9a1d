// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/nccl/gpu_transfer.h"

#include <algorithm>
#include <cmath>

#include "base/errors.h"

namespace ddp::check {
namespace {

constexpr std::size_t kLeastPiece = 4096;
constexpr double kSecondsOfTransfer = 0.2;
constexpr std::uint64_t kMinPieces = 8;
constexpr std::uint64_t kMaxPieces = 64;

}  // namespace

GpuTransfer plan_transfer(std::size_t most, double per_second) {
  if (!std::isfinite(per_second) || per_second <= 0)
    throw RuntimeError("the other end announced an invalid speed");
  const double slow_piece = per_second / static_cast<double>(kMinPieces);
  GpuTransfer transfer;
  transfer.bytes = static_cast<std::uint64_t>(std::clamp(
      slow_piece, static_cast<double>(std::min(most, kLeastPiece)), static_cast<double>(most)));
  const double pieces =
      std::min(kSecondsOfTransfer * per_second / static_cast<double>(transfer.bytes),
               static_cast<double>(kMaxPieces));
  transfer.pieces = std::max(static_cast<std::uint64_t>(pieces), kMinPieces);
  return transfer;
}

void require_possible(const GpuTransfer& transfer, std::size_t most) {
  const bool possible = transfer.bytes > 0 && transfer.bytes <= most &&
                        transfer.pieces >= kMinPieces && transfer.pieces <= kMaxPieces;
  if (!possible) throw RuntimeError("the other end announced an invalid amount of data");
}

}  // namespace ddp::check
