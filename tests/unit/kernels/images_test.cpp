// SPDX-License-Identifier: Apache-2.0
// What the machine code of the kernels must contain, read from the images that the driver gets. An
// image is a header and entries, one for each kind of GPU; entries are not compressed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "ddp_runtime/kernels/adamw.h"
#include "ddp_runtime/kernels/check.h"
#include "ddp_runtime/kernels/kernel_images.h"
#include "ddp_runtime/kernels/kernel_names.h"
#include "ddp_runtime/kernels/pack.h"

namespace ddp::kernels {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

struct Entry {
  std::string kind;  // "sm_90", or "compute_100" for PTX
  std::string_view code;
};

template <class T>
T read(std::string_view bytes, std::size_t at) {
  T value{};
  if (at + sizeof(value) > bytes.size()) throw std::out_of_range("the image ends too early");
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

// Reads the format that fatbinary of CUDA 13 writes, and cuobjdump --list-elf lists.
std::vector<Entry> entries_of(const KernelImage& image) {
  constexpr std::uint32_t kMagic = 0xba55ed50;
  constexpr std::uint16_t kPtx = 1;
  const std::string_view all(reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size());
  if (read<std::uint32_t>(all, 0) != kMagic) throw std::runtime_error("not an image of CUDA");
  std::size_t at = read<std::uint16_t>(all, 6);
  const std::size_t end = at + read<std::uint64_t>(all, 8);
  std::vector<Entry> entries;
  while (at < end) {
    const auto header = read<std::uint32_t>(all, at + 4);
    const auto size = read<std::uint64_t>(all, at + 8);
    const auto compressed = read<std::uint32_t>(all, at + 16);
    if (compressed != 0) throw std::runtime_error("an entry is compressed");
    const auto architecture = read<std::uint32_t>(all, at + 28);
    const bool ptx = read<std::uint16_t>(all, at) == kPtx;
    entries.push_back(
        {(ptx ? "compute_" : "sm_") + std::to_string(architecture), all.substr(at + header, size)});
    at += header + size;
  }
  return entries;
}

class Images : public testing::Test {
 protected:
  void SetUp() override {
    if (kernel_images().empty())
      GTEST_SKIP() << "skipped: no nvcc compiled the kernels of this build";
  }
  static const KernelImage& image(std::string_view name) {
    for (const auto& candidate : kernel_images()) {
      if (candidate.name == name) return candidate;
    }
    throw std::out_of_range("there is no image " + std::string(name));
  }
  // Expects the kernel in each entry, with one parameter of `bytes` bytes.
  static void expect_kernel(const KernelImage& in, const std::string& kernel, std::size_t bytes) {
    for (const auto& entry : entries_of(in)) {
      const std::string where = kernel + " for " + entry.kind;
      if (entry.kind.starts_with("sm_")) {
        EXPECT_EQ(entry.code.substr(0, 4),
                  "\x7f"
                  "ELF")
            << where;
        EXPECT_NE(entry.code.find(".text." + kernel + '\0'), std::string_view::npos) << where;
      } else {
        const auto begin = entry.code.find(".visible .entry " + kernel + "(");
        ASSERT_NE(begin, std::string_view::npos) << where;
        const std::string parameters(entry.code.substr(begin, entry.code.find(')', begin) - begin));
        EXPECT_THAT(parameters, HasSubstr("_param_0[" + std::to_string(bytes) + "]")) << where;
        EXPECT_EQ(parameters.find("_param_1"), std::string::npos) << where;
      }
    }
  }
};

TEST_F(Images, HaveCodeForEachGpu) {
  for (const auto& image : kernel_images()) {
    std::vector<std::string> kinds;
    for (const auto& entry : entries_of(image)) kinds.push_back(entry.kind);
    EXPECT_THAT(kinds, UnorderedElementsAre("sm_80", "sm_90", "sm_100", "compute_100"))
        << image.name;
  }
}

TEST_F(Images, HaveEachKernelWithTheArgumentsOfTheHost) {
  for (const auto& entry : kPackNames) {
    expect_kernel(image("pack"), entry.name, sizeof(PackArguments));
  }
  for (const auto& entry : kCheckNames) {
    expect_kernel(image("check"), entry.name, sizeof(CheckArguments));
  }
  for (const auto& entry : kAdamWNames) {
    expect_kernel(image("adamw"), entry.name, sizeof(AdamWArguments));
  }
}

// In PTX: groups are one access of 8 or 16 bytes, and two 16-bit elements one conversion.
TEST_F(Images, AccessGroupsAtOnce) {
  for (const auto& entry : entries_of(image("pack"))) {
    if (!entry.kind.starts_with("compute_")) continue;
    const auto code_of = [&](const std::string& kernel) {
      const auto begin = entry.code.find(".visible .entry " + kernel + "(");
      return std::string(entry.code.substr(begin, entry.code.find("\n}\n", begin) - begin));
    };
    const std::string to_bf16 = code_of("slurm_ddp_pack_f32_bf16");
    EXPECT_THAT(to_bf16, HasSubstr("ld.global.cg.v4.u32"));
    EXPECT_THAT(to_bf16, HasSubstr("st.global.wb.v2.u32"));
    EXPECT_THAT(to_bf16, HasSubstr("cvt.rn.bf16x2.f32"));
    const std::string to_f32 = code_of("slurm_ddp_pack_f32_f32");
    EXPECT_THAT(to_f32, HasSubstr("st.global.wb.v4.u32"));
    const std::string bf16 = code_of("slurm_ddp_pack_bf16_bf16");
    EXPECT_THAT(bf16, HasSubstr("ld.global.cg.v4.u32"));
    EXPECT_THAT(bf16, HasSubstr("st.global.wb.v4.u32"));
  }
}

}  // namespace
}  // namespace ddp::kernels
