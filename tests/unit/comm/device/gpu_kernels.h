// SPDX-License-Identifier: Apache-2.0
// Streams, memory and kernels of the fake's GPUs, for tests.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/group/buffer.h"
#include "ddp_runtime/gpu/cuda_runtime.h"
#include "tests/unit/comm/fake_gpu/fake_gpu.h"

namespace ddp::comm::test {

inline const cuda::Runtime& device_calls() {
  static const cuda::Runtime calls = cuda::load_runtime(SLURM_DDP_FAKE_GPU);
  return calls;
}

// A stream of this thread's device.
class TestStream {
 public:
  TestStream() { device_calls().stream_create(&stream_, cuda::kNonBlockingStream, 0); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  ~TestStream() { device_calls().stream_destroy(stream_); }
  DeviceStream get() const { return stream_; }
  // Waits for all work on the stream.
  void finish() const {
    while (device_calls().stream_query(stream_) == cuda::kNotReady) {
      device_calls().take_last_error();
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

 private:
  DeviceStream stream_ = nullptr;
};

// Memory of this thread's device that is not the group's.
inline std::shared_ptr<std::byte> device_memory(std::size_t bytes) {
  void* memory = nullptr;
  EXPECT_EQ(device_calls().allocate(&memory, bytes), cuda::kSuccess);
  return {static_cast<std::byte*>(memory), [](std::byte* p) { device_calls().free(p); }};
}

inline Buffer on_stream(std::byte* memory, std::size_t count, ElementType type,
                        const TestStream& stream) {
  return {memory, count, type, Memory::device, stream.get()};
}

inline fake::Range range_of(const Buffer& buffer) {
  return {buffer.data, buffer.bytes()};
}

// Kernels on the stream of the buffer: writing values, and reading them, which waits for the
// stream. Memory of the host is written and read at once.
template <class T>
void write(const Buffer& buffer, std::vector<T> values, DeviceStream stream) {
  ASSERT_EQ(values.size() * sizeof(T), buffer.bytes());
  if (buffer.memory == Memory::host) {
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(buffer.data));
    return;
  }
  fake::launch(stream, "a kernel that writes", {}, {range_of(buffer)},
               [to = buffer.data, values = std::move(values)] {
                 if (!values.empty()) std::memcpy(to, values.data(), values.size() * sizeof(T));
               });
}
template <class T>
void write(const Buffer& buffer, std::vector<T> values) {
  write(buffer, std::move(values), buffer.stream);
}

template <class T>
std::vector<T> read(const Buffer& buffer, const TestStream& stream) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  if (buffer.memory == Memory::host) {
    std::copy_n(reinterpret_cast<const T*>(buffer.data), values.size(), values.begin());
    return values;
  }
  fake::launch(stream.get(), "a kernel that reads", {range_of(buffer)}, {},
               [from = buffer.data, &values] {
                 if (!values.empty()) std::memcpy(values.data(), from, values.size() * sizeof(T));
               });
  stream.finish();
  return values;
}

// Each test has a fresh fake, and must neither misuse it nor leave anything behind, unless it says
// so.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override { fake::reset(); }
  void TearDown() override {
    if (!problems_expected_) {
      EXPECT_EQ(fake::problems(), std::vector<std::string>());
    }
    EXPECT_EQ(fake::leaks(), "");
  }
  // The problems that the fake found, which this test provokes.
  std::vector<std::string> expected_problems() {
    problems_expected_ = true;
    return fake::problems();
  }

 private:
  bool problems_expected_ = false;
};

}  // namespace ddp::comm::test
