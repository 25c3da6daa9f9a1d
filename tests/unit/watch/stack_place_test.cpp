// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/watch/stack_place.h"

#include <gtest/gtest.h>

namespace ddp::watch {
namespace {

// Frames of Python 3.11 and PyTorch 2.11, shortened.
const std::string kTorch = "/opt/venv/lib/python3.11/site-packages/torch/";

std::string frame(const std::string& file, int line, const std::string& function) {
  return "  File \"" + file + "\", line " + std::to_string(line) + " in " + function + "\n";
}

std::string stack(const std::string& head, const std::string& frames) {
  return head + " (most recent call first):\n" + frames + "\n";
}

std::string place_of_stack(const std::string& frames) {
  return place_in_stacks(stack("Stack", frames));
}

TEST(PlaceInStacks, IsTheProgramsOwnCode) {
  const std::string step = frame("/home/user/train.py", 88, "step");
  EXPECT_EQ(place_of_stack(step + frame("/home/user/train.py", 120, "<module>")),
            "train.py:88 in step");
  EXPECT_EQ(place_of_stack(frame("/home/user/train.py", 120, "<module>")), "train.py:120");
  EXPECT_EQ(place_of_stack(frame("<string>", 5, "<module>")), "<string>:5");
  EXPECT_EQ(place_in_stacks(stack("Stack", frame("a.py", 1, "f")) + stack("Stack", step)),
            "train.py:88 in step")
      << "the last answer";
}

TEST(PlaceInStacks, NamesWhatTheProgramCalls) {
  const std::string step = frame("/home/user/train.py", 88, "step");
  EXPECT_EQ(place_of_stack(frame(kTorch + "distributed/distributed_c10d.py", 2810, "all_reduce") +
                           frame(kTorch + "distributed/c10d_logger.py", 81, "wrapper") + step),
            "train.py:88 in step (distributed_c10d.all_reduce)")
      << "and not the wrapper";
  EXPECT_EQ(place_of_stack(frame(kTorch + "autograd/graph.py", 825, "_engine_run_backward") +
                           frame(kTorch + "autograd/__init__.py", 347, "backward") +
                           frame(kTorch + "_tensor.py", 581, "backward") + step),
            "train.py:88 in step (_tensor.backward)");
  EXPECT_EQ(place_of_stack(frame("/usr/lib/python3.11/selectors.py", 415, "select") +
                           frame(kTorch + "utils/data/dataloader.py", 1133, "_try_get_data") +
                           frame(kTorch + "utils/data/dataloader.py", 630, "__next__") + step),
            "train.py:88 in step (dataloader.__next__)");
}

TEST(PlaceInStacks, IsThatOfALibraryIfNothingElseRuns) {
  EXPECT_EQ(place_of_stack(frame("/usr/lib/python3.11/threading.py", 1583, "_shutdown")),
            "threading.py:1583 in _shutdown");
  EXPECT_EQ(place_of_stack(frame("<frozen importlib._bootstrap>", 1027, "_find_and_load")),
            "<frozen impo...._bootstrap>:1027 in _find_and_load");
}

TEST(PlaceInStacks, IsUnknownWithoutAStack) {
  EXPECT_EQ(place_in_stacks(""), "");
  EXPECT_EQ(place_of_stack("  <no Python frame>\n"), "");
  EXPECT_EQ(place_of_stack("  File ???, line ??? in ???\n"), "");
  EXPECT_EQ(place_of_stack("  File \"train.py\", line x in step\n"), "");
  EXPECT_EQ(place_of_stack("  File \"train.py\", line 8\n"), "");
  EXPECT_EQ(place_of_stack("- File \"train.py\", line 8 in step\n"), "");
  EXPECT_EQ(place_of_stack("  File \", line 8 in f\n"), "");
}

TEST(PlaceInStacks, ShowsNumbersWithoutLeadingZeros) {
  EXPECT_EQ(place_of_stack("  File \"a.py\", line " + std::string(500, '0') + "8 in f\n"),
            "a.py:8 in f");
}

TEST(PlaceInStacks, KeepsBothEndsOfLongNames) {
  EXPECT_EQ(place_of_stack(frame("/home/train.py", 8, "exchange_all_the_gradient_buckets_first")),
            "train.py:8 in exchange_all...uckets_first");
}

TEST(PlaceInStacks, IsPrintableAndBounded) {
  EXPECT_EQ(place_of_stack(frame("/home/a\", line 3 in b/tr\x1b[31m.py", 8, "f\x07")),
            "tr?[31m.py:8 in f?");
  const std::string name(1000, 'x');
  const auto place = place_of_stack(frame(kTorch + name + ".py", 1, name) +
                                    frame("/home/" + name, 1'000'000'000, name));
  EXPECT_EQ(place.size(), 127U);
}

}  // namespace
}  // namespace ddp::watch
