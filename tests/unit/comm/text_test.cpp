#include "ddp_runtime/comm/text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "ddp_runtime/comm/random_token.h"

namespace ddp::comm {
namespace {

TEST(Text, IsCutBetweenCharacters) {
  const std::string text = "a\u00e9\u20ac\U0001F600z";  // of 1, 2, 3, 4 and 1 bytes
  const std::size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
  for (std::size_t bytes = 0; bytes < std::size(whole); ++bytes) {
    EXPECT_EQ(beginning_of(text, bytes).size(), whole[bytes]) << bytes;
  }
}

TEST(Text, InvalidUtf8IsCutAnywhere) {
  const std::string text(100, '\x80');
  EXPECT_EQ(beginning_of(text, 50).size(), 50U);
}

TEST(Text, JsonCanHoldInvalidUtf8) {
  const auto text = as_text({{"file", "/tmp/text\xff\xfe.txt"}, {"half", "\xe2\x82"}});
  const auto back = nlohmann::json::parse(text);
  EXPECT_EQ(back.at("file"), "/tmp/text\ufffd\ufffd.txt");
}

TEST(Token, AreUnique) {
  const auto token = random_token();
  EXPECT_NE(random_token(), token);
}

}  // namespace
}  // namespace ddp::comm
