// SPDX-License-Identifier: Apache-2.0
// Captures of the fake device must refuse what those of CUDA refuse: see Note [Graphs of the fake
// device]. What replays compute is compared with eager steps in graph_training_device_test.cpp.
#include <ATen/Context.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>

#include <functional>
#include <string>
#include <utility>

#include "tests/unit/error_of.h"
#include "tests/unit/fake_device/fake_device_fixture.h"
#include "tests/unit/fake_device/streams.h"

namespace ddp::fake_device {
namespace {

using testing::Contains;
using testing::HasSubstr;

c10::Stream side_stream() {
  return c10::impl::VirtualGuardImpl(kType).getStreamFromGlobalPool(device(), false);
}

// The stream has seen what is on the current stream of this thread.
void follow_current(const c10::Stream& stream) {
  c10::Event before(kType);
  before.record(current_stream());
  before.block(stream);
}

at::Generator generator() {
  return at::globalContext().defaultGenerator(device());
}

torch::Tensor on_device(const std::vector<float>& values) {
  return torch::tensor(values).to(device());
}

std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) {
  auto graph = make_graph(device());
  graph->begin_capture();
  work();
  graph->end_capture();
  return graph;
}

struct FakeDeviceGraph : FakeDeviceTest {
  FakeDeviceGraph() : guard(side_stream()) {}
  c10::StreamGuard guard;
};

TEST_F(FakeDeviceGraph, RefusesWhatCudaRefuses) {
  const auto tensor = on_device({1, 2});
  const auto pageable = torch::zeros({2});
  c10::Event uncaptured(kType);
  uncaptured.record(current_stream());
  const std::string capturing = "operation not permitted when stream is capturing";
  const std::vector<std::pair<std::string, std::function<void()>>> cases = {
      {capturing, [&] { tensor.sum().item<float>(); }},
      {capturing, [&] { tensor.nonzero(); }},
      {capturing, [&] { tensor.copy_(pageable); }},
      {capturing, [&] { tensor.copy_(pageable, /*non_blocking=*/true); }},
      {capturing, [&] { tensor.cpu(); }},
      {capturing, [&] { current_stream().synchronize(); }},
      {capturing, [&] { generator().get_state(); }},
      {capturing, [&] { uncaptured.block(current_stream()); }},
      {capturing, [&] { uncaptured.query(); }},
      {"an event last recorded in a capturing stream",
       [&] {
         c10::Event event(kType);
         event.record(current_stream());
         event.query();
       }},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto& [expected, call] = cases[i];
    const auto graph = make_graph(device());
    graph->begin_capture();
    EXPECT_THAT(error_of(call), HasSubstr(expected)) << i;
    if (expected == capturing) {
      EXPECT_THAT(error_of([&] { graph->end_capture(); }),
                  HasSubstr("previous error during capture"))
          << i;
    }
    EXPECT_THAT(error_of([&] { graph->replay(0); }), HasSubstr("no valid capture"));
  }
}

TEST_F(FakeDeviceGraph, RefusesMemoryThatIsNotOfLibtorch) {
  const auto graph = make_graph(device());
  graph->begin_capture();
  void* memory = nullptr;
  EXPECT_EQ(calls().allocate(&memory, 8), 900);
  EXPECT_THAT(error_of([&] { graph->end_capture(); }), HasSubstr("previous error"));
  EXPECT_EQ(calls().allocate(&memory, 8), 0);
  EXPECT_EQ(calls().free(memory), 0);
}

TEST_F(FakeDeviceGraph, RefusesTheDefaultStream) {
  const c10::StreamGuard on_default(stream_number(0, 0));
  const auto graph = make_graph(device());
  EXPECT_THAT(error_of([&] { graph->begin_capture(); }),
              HasSubstr("default stream cannot be captured"));
}

TEST_F(FakeDeviceGraph, FindsAReplayThatDoesNotWaitForItsInput) {
  const auto input = on_device({1, 2});
  torch::Tensor doubled;
  const auto graph = capture([&] { doubled = input * 2; });
  const auto other = side_stream();
  follow_current(other);
  {
    const c10::StreamGuard there(other);
    input.fill_(3);
  }
  graph->replay(0);
  EXPECT_THAT(expected_problems(), Contains(HasSubstr("reads memory without waiting")));
}

TEST_F(FakeDeviceGraph, FindsMemoryThatHasBeenFreed) {
  auto input = on_device({1, 2});
  torch::Tensor doubled;
  const auto graph = capture([&] { doubled = input * 2; });
  input.reset();
  EXPECT_THAT(error_of([&] { graph->replay(0); }),
              HasSubstr("memory that has been freed since the capture"));
}

}  // namespace
}  // namespace ddp::fake_device
