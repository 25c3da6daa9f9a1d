// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/tensors/torch_release.h"

#include <gmock/gmock.h>

namespace ddp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Optional;

TEST(TorchRelease, IsReadFromTheVersionOfTheInterface) {
  EXPECT_EQ(torch_release_of(0x020b000000000000), "2.11.0");
  EXPECT_EQ(torch_release_of(0x020f010000000000), "2.15.1");
}

TEST(TorchRelease, IsReadFromTheConfiguration) {
  EXPECT_EQ(torch_release_in("PyTorch built with:\n  - Build settings: CXX_FLAGS=-O2, "
                             "TORCH_VERSION=2.15.0, USE_CUDA=ON, \n"),
            "2.15.0");
  EXPECT_EQ(torch_release_in("TORCH_VERSION=2.11.0"), "2.11.0");
  EXPECT_EQ(torch_release_in("PyTorch built with:\n  - GCC 12.2\n"), "");
}

TEST(TorchRelease, OfTheBuildOrWithAnotherPatchIsAccepted) {
  EXPECT_EQ(torch_release_problem("2.15.0", "2.15.0", "/venv/libtorch_cpu.so"), std::nullopt);
  EXPECT_EQ(torch_release_problem("2.15.0", "2.15.1", "/venv/libtorch_cpu.so"), std::nullopt);
}

TEST(TorchRelease, OfALibraryThatDoesNotNameItIsAccepted) {
  EXPECT_EQ(torch_release_problem("2.15.0", "", "/venv/libtorch_cpu.so"), std::nullopt);
}

TEST(TorchRelease, ThatDiffersIsNamedWithTheFile) {
  for (const char* loaded : {"2.11.0", "2.1.0", "2.150.0", "1.15.0", "3.15.0"}) {
    EXPECT_THAT(torch_release_problem("2.15.0", loaded, "/venv/libtorch_cpu.so"),
                Optional(AllOf(HasSubstr("built with libtorch 2.15.0, but /venv/libtorch_cpu.so "),
                               HasSubstr(std::string(" is libtorch ") + loaded + ";"))));
  }
}

}  // namespace
}  // namespace ddp
