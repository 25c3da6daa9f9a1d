// SPDX-License-Identifier: Apache-2.0
// Finds functions in the C library, which is on every machine and in this process already.
#include "ddp_runtime/gpu/shared_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/errors.h"
#include "tests/unit/error_of.h"

namespace ddp::gpu {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

constexpr std::array<const char*, 2> kNames = {"libno-such.so.1", "libc.so.6"};

TEST(SharedLibrary, FindsFunctionsByName) {
  for (const auto& library : {SharedLibrary("libc.so.6"), SharedLibrary("C", kNames, {})}) {
    int (*const absolute)(int) = library["abs"];
    EXPECT_EQ(absolute(-3), 3);
    EXPECT_EQ(library.find("no_such").address, nullptr);
    EXPECT_THAT(library.file_of("abs"), AllOf(HasSubstr("/"), EndsWith("libc.so.6")));
    EXPECT_EQ(library.file_of("no_such"), "libc.so.6");
  }
}

TEST(SharedLibrary, ByNameThrowsARuntimeError) {
  EXPECT_THROW(SharedLibrary("libno-such.so.1"), RuntimeError);
  EXPECT_THAT(error_of([] { SharedLibrary("libno-such.so.1"); }),
              HasSubstr("libno-such.so.1: cannot open shared object file"));
  const SharedLibrary library("libc.so.6");
  EXPECT_THROW(library["no_such"], RuntimeError);
  EXPECT_EQ(error_of([&] { library["no_such"]; }), "libc.so.6 does not contain no_such");
}

TEST(SharedLibrary, ForAPurposeThrowsAUsageError) {
  const std::span missing(kNames.data(), 1);
  EXPECT_THROW(SharedLibrary("C", missing, {}), UsageError);
  EXPECT_THAT(error_of([&] { SharedLibrary("C", missing, {}); }),
              AllOf(HasSubstr("C is neither in this process nor on the search path of libraries ("),
                    HasSubstr("libno-such.so.1: cannot open shared object file")));
  EXPECT_THAT(error_of([&] { SharedLibrary("C", missing, "/no/such.so"); }),
              HasSubstr("C cannot be loaded from the given file: /no/such.so: "));
  const SharedLibrary library("C", kNames, {});
  EXPECT_THROW(library["no_such"], UsageError);
  EXPECT_THAT(error_of([&] { library["no_such"]; }),
              HasSubstr("C in libc.so.6 does not contain no_such; install a newer version"));
}

TEST(SharedLibrary, NoLibraryHasNoFunctions) {
  EXPECT_EQ(SharedLibrary()["abs"].address, nullptr);
}

}  // namespace
}  // namespace ddp::gpu
