// SPDX-License-Identifier: Apache-2.0
// Memory and streams of a GPU for the programs that run kernels.
//
// GPU_TEST_CUDA_LIBRARY names the file of the CUDA runtime; without it the dynamic linker finds it.
// If it is the fake of tests/unit/comm/fake_gpu, that is the driver, too.
#pragma once

#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "ddp_runtime/comm/device/device_calls.h"
#include "ddp_runtime/kernels/kernel_calls.h"
#include "ddp_runtime/kernels/launcher.h"
#include "tests/unit/kernels/values.h"

namespace ddp::kernels::gpu {

struct Machine {
  comm::DeviceCalls device;
  KernelCalls driver;
  std::string missing;  // why kernels cannot run; empty if they can
};

inline const Machine& machine() {
  static const Machine found = [] {
    Machine m;
    const char* const file = std::getenv("GPU_TEST_CUDA_LIBRARY");
    const std::string path = file == nullptr ? "" : file;
    const bool fake = path.find("fake_gpu") != std::string::npos;
    try {
      m.device = comm::load_device_calls(path);
      comm::require_device(m.device, 0);
      m.driver = load_kernel_calls(fake ? path : "");
      if (!has_kernels()) throw UsageError("this build has no kernels, because it had no nvcc");
    } catch (const std::exception& e) {
      m.missing = e.what();
    }
    return m;
  }();
  return found;
}

inline const comm::DeviceCalls& calls() {
  return machine().device;
}

class Stream {
 public:
  Stream() {
    comm::check_device(calls(), calls().stream_create(&stream_, comm::cuda::kNonBlockingStream, 0),
                       "create a stream");
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { calls().stream_destroy(stream_); }
  comm::DeviceStream get() const { return stream_; }
  // Waits for all work on the stream.
  void finish() const {
    for (;;) {
      const int code = calls().stream_query(stream_);
      if (code != comm::cuda::kNotReady) return comm::check_device(calls(), code, "run a kernel");
      calls().take_last_error();
      std::this_thread::yield();
    }
  }

 private:
  comm::DeviceStream stream_ = nullptr;
};

// Device memory with the given bytes.
class Memory {
 public:
  Memory(const void* bytes, std::size_t size, const Stream& stream) : Memory(size) {
    if (size == 0) return;
    comm::check_device(
        calls(), calls().copy(data_, bytes, size, comm::cuda::kCopyDefault, stream.get()), "copy");
    stream.finish();
  }
  explicit Memory(std::size_t size) : size_(size) {
    comm::check_device(calls(), calls().allocate(&data_, size == 0 ? 1 : size), "allocate memory");
  }
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() {
    if (data_ != nullptr) calls().free(data_);
  }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  void read(void* bytes, const Stream& stream) const {
    if (size_ == 0) return;
    comm::check_device(
        calls(), calls().copy(bytes, data_, size_, comm::cuda::kCopyDefault, stream.get()), "copy");
    stream.finish();
  }
  template <class T>
  T read(const Stream& stream) const {
    T value{};
    if (size_ == sizeof(value)) read(&value, stream);
    return value;
  }

 private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

// A copy of an array with the poison around it, at the same offset from a multiple of 64 bytes.
template <class Element>
class Mirror {
 public:
  using Bits = typename Element::Bits;
  Mirror(const test::Array<Element>& array, const Stream& stream)
      : memory_(array.whole().data(), array.whole().size(), stream), first_(array.first_byte()) {}
  Bits* data() const { return reinterpret_cast<Bits*>(memory_.as<unsigned char>() + first_); }
  // `array` has the count and the offset of the original.
  void read(test::Array<Element>& array, const Stream& stream) const {
    if (array.first_byte() != first_) throw std::logic_error("the arrays are not alike");
    memory_.read(array.whole().data(), stream);
  }

 private:
  Memory memory_;
  std::size_t first_;
};

}  // namespace ddp::kernels::gpu
