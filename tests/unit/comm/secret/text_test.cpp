// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/secret/text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "base/secret/random_token.h"

namespace ddp::comm {
namespace {

TEST(Text, JsonReplacesInvalidUtf8) {
  const auto text = as_text({{"file", "/tmp/text\xff\xfe.txt"}, {"half", "\xe2\x82"}});
  const auto back = nlohmann::json::parse(text);
  EXPECT_EQ(back.at("file"), "/tmp/text\ufffd\ufffd.txt");
}

TEST(Token, IsUnique) {
  const auto token = random_token();
  EXPECT_NE(random_token(), token);
}

}  // namespace
}  // namespace ddp::comm
