// SPDX-License-Identifier: Apache-2.0
// Numbers as text, escaped strings, ticks of axes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ddp_runtime/report/document/format.h"
#include "ddp_runtime/report/document/table.h"
#include "ddp_runtime/report/render/axis.h"
#include "ddp_runtime/report/render/escape.h"

namespace ddp::report {
namespace {

TEST(Format, ThreeDigits) {
  EXPECT_EQ(significant(0), "0");
  EXPECT_EQ(significant(1), "1.00");
  EXPECT_EQ(significant(0.00123456), "0.00123");
  EXPECT_EQ(significant(9.996), "10.0");
  EXPECT_EQ(significant(99.96), "100");
  EXPECT_EQ(significant(12345.6), "12346");
  EXPECT_EQ(significant(-2.345), "-2.35");
  EXPECT_EQ(significant(1e-9), "1.00e-09");
  EXPECT_EQ(significant(1e18), "1.00e+18");
  EXPECT_EQ(significant(std::nan("")), kAbsent);
  EXPECT_EQ(significant(std::numeric_limits<double>::infinity()), kAbsent);
}

TEST(Format, Compact) {
  EXPECT_EQ(compact(0.5), "0.500");
  EXPECT_EQ(compact(9999), "9999");
  EXPECT_EQ(compact(17604), "17.6k");
  EXPECT_EQ(compact(999'600), "1.00M");
  EXPECT_EQ(compact(-3.94e14), "-394T");
  EXPECT_EQ(compact(9.9e17), "990P");
  EXPECT_EQ(compact(2e18), "2.00e+18");
  EXPECT_EQ(compact(std::nan("")), kAbsent);
}

TEST(Format, PercentAndMilliseconds) {
  EXPECT_EQ(percent(0.6134), "61.3 %");
  EXPECT_EQ(percent(-0.00001), "0.0 %");
  EXPECT_EQ(percent(1), "100.0 %");
  EXPECT_EQ(percent(std::nan("")), kAbsent);
  EXPECT_EQ(milliseconds(0.0123), "12.3");
}

TEST(Format, HugePercentagesAndLongNamesStayShort) {
  EXPECT_EQ(percent(1e300), "1.0e+302 %");
  EXPECT_EQ(percent(9999), "999900.0 %");
  EXPECT_EQ(shortened("mlp"), "mlp");
  EXPECT_EQ(shortened(std::string(80, 'x')), std::string(80, 'x'));
  EXPECT_EQ(shortened(std::string(4000, 'x')), std::string(80, 'x') + "…");
  std::string accents;
  for (int i = 0; i < 81; ++i) accents += "é";
  EXPECT_EQ(shortened(accents), accents.substr(0, 160) + "…");
}

TEST(Format, Cells) {
  EXPECT_EQ(text_of({}, Show::percent), kAbsent);
  EXPECT_EQ(text_of(std::string(), Show::text), kAbsent);
  EXPECT_EQ(text_of(std::string("words"), Show::count), "words");
  EXPECT_EQ(text_of(64.0, Show::count), "64");
  EXPECT_EQ(text_of(64.0, Show::text), "64");
  EXPECT_EQ(text_of(0.5, Show::text), "0.500");
  EXPECT_EQ(text_of(0.5, Show::percent), "50.0 %");
  EXPECT_EQ(text_of(0.5, Show::milliseconds), "500");
  EXPECT_EQ(text_of(std::nan(""), Show::significant), kAbsent);
}

const std::string kReplaced = "\xEF\xBF\xBD";

TEST(Escape, Html) {
  EXPECT_EQ(html_escape("<script>alert('1')</script> & \"x\""),
            "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt; &amp; &quot;x&quot;");
  EXPECT_EQ(html_escape("tab\tline\n"), "tab\tline\n");
  EXPECT_EQ(html_escape("Müller 数 \U0001F600"), "Müller 数 \U0001F600");
}

TEST(Escape, CharactersInvalidInXmlAreReplaced) {
  EXPECT_EQ(html_escape(std::string("a\0b", 3)), "a" + kReplaced + "b");
  EXPECT_EQ(html_escape("\x1b[31m"), kReplaced + "[31m");
  EXPECT_EQ(html_escape("\xff"), kReplaced);
  EXPECT_EQ(html_escape("\xc0\x80"), kReplaced + kReplaced);                  // overlong NUL
  EXPECT_EQ(html_escape("\xed\xa0\x80"), kReplaced + kReplaced + kReplaced);  // a surrogate
  EXPECT_EQ(html_escape("\xef\xbf\xbe"), kReplaced);                          // U+FFFE
  EXPECT_EQ(html_escape("\xf4\x90\x80\x80").substr(0, 3), kReplaced);         // beyond Unicode
  EXPECT_EQ(html_escape("x\xe6\x95"), "x" + kReplaced + kReplaced);           // cut off
}

TEST(Escape, MarkdownStaysInItsCell) {
  EXPECT_EQ(markdown_escape("a|b\nc"), "a\\|b c");
  EXPECT_EQ(markdown_escape("[x](javascript:1) <b> `c` *d*"),
            "\\[x\\](javascript:1) \\<b> \\`c\\` \\*d\\*");
  EXPECT_EQ(markdown_escape("samples_per_second (3.5)"), "samples_per_second (3.5)");
  EXPECT_EQ(markdown_escape("_x_ __y"), "\\_x\\_ \\_\\_y");
  EXPECT_EQ(markdown_escape("# a - b"), "\\# a - b");
}

TEST(Escape, TerminalControlCharactersAreReplaced) {
  EXPECT_EQ(terminal_text("a\tb\nMüller 数"), "a\tb\nMüller 数");
  EXPECT_EQ(terminal_text("\x1b[31m"), kReplaced + "[31m");
  EXPECT_EQ(terminal_text(std::string("a\0b", 3)), "a" + kReplaced + "b");
  EXPECT_EQ(terminal_text("a\rb\x7f\b"), "a" + kReplaced + "b" + kReplaced + kReplaced);
  EXPECT_EQ(terminal_text("\u202Etxt.exe\u2066"), kReplaced + "txt.exe" + kReplaced);
  EXPECT_EQ(terminal_text("\u009b31m"), kReplaced + "31m");  // CSI as a single character
}

TEST(Axis, MapsValuesToPixels) {
  const Axis linear(0, 10, 100, 200, false);
  EXPECT_DOUBLE_EQ(linear(0), 100);
  EXPECT_DOUBLE_EQ(linear(5), 150);
  const Axis binary(1, 16, 0, 400, true);
  EXPECT_DOUBLE_EQ(binary(1), 0);
  EXPECT_DOUBLE_EQ(binary(4), 200);
  EXPECT_DOUBLE_EQ(Axis(3, 3, 0, 10, false)(3), 5);  // a single value: the middle
}

TEST(Axis, LinearTicksAreRoundAndReachTheTop) {
  EXPECT_EQ(linear_ticks(925), (std::vector<double>{0, 200, 400, 600, 800, 1000}));
  EXPECT_EQ(linear_ticks(1), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_DOUBLE_EQ(linear_ticks(0.00012).back(), 0.000125);
  EXPECT_EQ(linear_ticks(0), (std::vector<double>{0, 1}));
  EXPECT_EQ(linear_ticks(std::nan("")), (std::vector<double>{0, 1}));
  for (double high = 1e-7; high < 1e12; high *= 1.37) {
    const auto ticks = linear_ticks(high);
    EXPECT_GE(ticks.back(), high * (1 - 1e-9));
    EXPECT_LE(ticks.size(), 11U);
    EXPECT_GE(ticks.size(), 3U);
  }
}

TEST(Axis, BinaryTicksEncloseTheRange) {
  EXPECT_EQ(binary_ticks(1, 64), (std::vector<double>{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(binary_ticks(0.7, 3), (std::vector<double>{0.5, 1, 2, 4}));
  EXPECT_EQ(binary_ticks(0.98, 4.05), (std::vector<double>{1, 2, 4}));  // only slightly above
  EXPECT_EQ(binary_ticks(1, 1024).size(), 6U);                          // every second power
}

}  // namespace
}  // namespace ddp::report
