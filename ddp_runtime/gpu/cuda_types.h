// SPDX-License-Identifier: Apache-2.0
// Types and numbers of CUDA's binary interface. The driver and the runtime share them.
#pragma once

namespace ddp::cuda {

using Code = int;
using Event = void*;
using Stream = void*;

inline constexpr Code kSuccess = 0;
inline constexpr Code kOutOfMemory = 2;
inline constexpr Code kInsufficientDriver = 35;  // of the runtime only
inline constexpr Code kNoDevice = 100;
inline constexpr Code kUncorrectableMemoryError = 214;
inline constexpr Code kUncorrectableLinkError = 220;
inline constexpr Code kNotReady = 600;
inline constexpr Code kPeerAccessAlreadyEnabled = 704;
inline constexpr unsigned kNonBlockingStream = 1;
inline constexpr unsigned kEventWithTiming = 0;
inline constexpr unsigned kEventWithoutTiming = 2;
inline constexpr unsigned kPortable = 1;  // pinned for all GPUs
inline constexpr int kCaptureModeThreadLocal = 1;
inline constexpr int kCopyDefault = 4;  // the direction follows from the addresses

}  // namespace ddp::cuda
