// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Split, KeepsEmptyPiecesUpToALimit) {
  EXPECT_THAT(split("", ','), ElementsAre(""));
  EXPECT_THAT(split("a,,b,", ','), ElementsAre("a", "", "b", ""));
  EXPECT_THAT(split("a,b,c", ',', 2), ElementsAre("a", "b"));
}

TEST(Words, AreSeparatedBySpacesAndTabs) {
  EXPECT_THAT(words_of(" \t "), IsEmpty());
  EXPECT_THAT(words_of("  a\tb  c "), ElementsAre("a", "b", "c"));
  EXPECT_THAT(words_of("a b c", 2), ElementsAre("a", "b"));
}

TEST(Trimmed, HasNoSurroundingSpace) {
  EXPECT_EQ(trimmed(" \t a b\r\n"), "a b");
  EXPECT_EQ(trimmed(" \n"), "");
}

TEST(Join, PutsTheSeparatorBetweenParts) {
  EXPECT_EQ(join({}, ","), "");
  EXPECT_EQ(join(std::vector<std::string>{"a", "", "b"}, ","), "a,,b");
}

TEST(Decimal, IsStrictAndBounded) {
  EXPECT_EQ(parse_decimal("0", 10), 0U);
  EXPECT_EQ(parse_decimal("010", 10), 10U);
  EXPECT_EQ(parse_decimal("11", 10), std::nullopt);
  EXPECT_EQ(parse_decimal("5", 4), std::nullopt);
  constexpr auto kMax = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(parse_decimal("18446744073709551615", kMax), kMax);
  EXPECT_EQ(parse_decimal("18446744073709551616", kMax), std::nullopt);
  for (const auto* text : {"", " 1", "1 ", "+1", "-1", "0x1", "1e3", "1.0"}) {
    EXPECT_EQ(parse_decimal(text, 1000), std::nullopt) << text;
  }
}

TEST(ShellWord, QuotesShellCharacters) {
  EXPECT_EQ(shell_word("node1:29500"), "node1:29500");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("a b"), "'a b'");
  EXPECT_EQ(shell_word("$(reboot)"), "'$(reboot)'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("a\nb"), "'a\nb'");
}

TEST(QuoteForDisplay, ShowsUntrustedTextSafely) {
  EXPECT_EQ(quote_for_display("abc"), "'abc'");
  EXPECT_EQ(quote_for_display("a\x1b[2Jb\n"), "'a?[2Jb?'");
  EXPECT_EQ(quote_for_display(std::string(100, 'x')).size(), 60 + 5U);
}

TEST(Decimal, FitsItsType) {
  EXPECT_EQ(parse_decimal("4294967295"), 4294967295U);
  EXPECT_EQ(parse_decimal("4294967296"), std::nullopt);
  EXPECT_EQ(parse_hexadecimal("ffffFFFF"), 0xffff'ffffU);
  EXPECT_EQ(parse_hexadecimal("0x1"), std::nullopt);
  EXPECT_EQ(parse_hexadecimal(""), std::nullopt);
}

TEST(Sanitize, KeepsOnlyPrintableAscii) {
  EXPECT_EQ(sanitize("a\x1b[2J\n\xc3\xa9~"), "a?[2J???~");
  EXPECT_EQ(sanitize_beginning("abc", 3), "abc");
  EXPECT_EQ(sanitize_beginning("ab\ncd", 3), "ab?...");
  EXPECT_EQ(sanitize_first_line("a\tb\nc", 60), "a?b");
  EXPECT_EQ(sanitize_first_line("abc\nd", 2), "ab");
  EXPECT_EQ(sanitize_lines("a\nb\tc", 60), "a b?c");
  EXPECT_EQ(sanitize_lines("a\nb", 2), "a ");
}

TEST(HostOrAddress, RejectsShellCharacters) {
  for (const auto* text : {"n1", "a.b-c_d", "fe80::1%eth0"}) EXPECT_TRUE(is_host_or_address(text));
  for (const auto* text : {"", "a b", "$(x)", "a/b", "\xc3\xa9"})
    EXPECT_FALSE(is_host_or_address(text)) << text;
  EXPECT_FALSE(is_host_or_address(std::string(256, 'a')));
}

TEST(BeginningOf, IsCutBetweenCharacters) {
  const std::string text = "a\u00e9\u20ac\U0001F600z";  // characters of 1, 2, 3, 4 and 1 bytes
  const std::size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
  for (std::size_t bytes = 0; bytes < std::size(whole); ++bytes) {
    EXPECT_EQ(beginning_of(text, bytes).size(), whole[bytes]) << bytes;
  }
}

TEST(BeginningOf, NonUtf8TextIsCutAnywhere) {
  const std::string text(100, '\x80');
  EXPECT_EQ(beginning_of(text, 50).size(), 50U);
}

}  // namespace
}  // namespace ddp
