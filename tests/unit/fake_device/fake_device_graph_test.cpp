// SPDX-License-Identifier: Apache-2.0
// Captures and replays of the fake device: see Note [Graphs of the fake device].
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

std::vector<float> floats_of(const torch::Tensor& tensor) {
  const auto host = tensor.detach().cpu().contiguous();
  return {host.data_ptr<float>(), host.data_ptr<float>() + host.numel()};
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

TEST_F(FakeDeviceGraph, ReplaysTheWorkOnTheMemoryOfTheCapture) {
  const auto input = on_device({1, 2});
  const auto sum = on_device({10, 10});
  torch::Tensor doubled;
  const auto graph = capture([&] {
    doubled = input * 2;
    sum.add_(doubled);
  });
  EXPECT_EQ(floats_of(sum), (std::vector<float>{10, 10}));
  EXPECT_TRUE(std::isnan(floats_of(doubled)[0]));
  graph->replay(0);
  EXPECT_EQ(floats_of(sum), (std::vector<float>{12, 14}));
  EXPECT_EQ(floats_of(doubled), (std::vector<float>{2, 4}));
  input.fill_(3);
  graph->replay(0);
  EXPECT_EQ(floats_of(sum), (std::vector<float>{18, 20}));
}

TEST_F(FakeDeviceGraph, CopiesWhatTheHostHasWrittenSinceTheCapture) {
  const auto host = torch::zeros({2}).pin_memory();
  const auto copied = on_device({0, 0});
  const auto graph = capture([&] { copied.copy_(host, /*non_blocking=*/true); });
  host.fill_(5);
  graph->replay(0);
  EXPECT_EQ(floats_of(copied), (std::vector<float>{5, 5}));
}

TEST_F(FakeDeviceGraph, DrawsTheRandomNumbersOfTheStepsThatItReplays) {
  const auto draw = [](const torch::Tensor& to) { to.copy_(torch::rand_like(to)); };
  std::vector<std::vector<float>> expected;
  std::vector<std::vector<float>> replayed;
  const auto numbers = on_device({0, 0, 0});
  generator().set_current_seed(7);
  for (int step = 0; step < 3; ++step) {
    draw(numbers);
    expected.push_back(floats_of(numbers));
  }
  generator().set_current_seed(7);
  const auto graph = capture([&] { draw(numbers); });
  for (int step = 0; step < 3; ++step) {
    graph->replay(0);
    replayed.push_back(floats_of(numbers));
  }
  EXPECT_EQ(replayed, expected);
}

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

TEST_F(FakeDeviceGraph, RunsTheProgramBetweenItsParts) {
  const auto input = on_device({1, 2});
  torch::Tensor doubled;
  torch::Tensor increased;
  const auto graph = make_graph(device());
  graph->begin_capture();
  doubled = input * 2;
  graph->cut();
  increased = doubled + 1;
  graph->end_capture();
  for (int step = 0; step < 2; ++step) {
    graph->replay(0);
    doubled.mul_(10);
    graph->replay(1);
    EXPECT_EQ(floats_of(increased), (std::vector<float>{21, 41}));
  }
  EXPECT_THAT(error_of([&] { graph->replay(1); }), HasSubstr("0 is the next one"));
}

TEST_F(FakeDeviceGraph, ReplayIsOneLaunch) {
  const auto input = on_device({1, 2});
  torch::Tensor result;
  const auto graph = capture([&] { result = (input * 2 + 1).exp(); });
  const int before = launches();
  graph->replay(0);
  EXPECT_EQ(launches(), before + 1);
}

}  // namespace
}  // namespace ddp::fake_device
