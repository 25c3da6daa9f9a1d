// SPDX-License-Identifier: Apache-2.0
#include "base/channel/wire.h"

#include <gtest/gtest.h>

#include <random>

#include "base/errors.h"

namespace ddp {
namespace {

TEST(Wire, MessagesArriveWholeForAnySplit) {
  const std::string stream = encode({MessageKind::hello, 3, "token who"}) +
                             encode({MessageKind::failure, 70000, std::string(5000, 'x')}) +
                             encode({MessageKind::goodbye, 0, ""});
  for (const std::size_t piece : {1U, 2U, 9U, 10U, 4096U}) {
    Decoder decoder;
    std::vector<Message> got;
    for (std::size_t i = 0; i < stream.size(); i += piece) {
      decoder.append(std::span(stream).subspan(i, std::min(piece, stream.size() - i)));
      while (const auto message = decoder.next()) got.push_back(*message);
    }
    ASSERT_EQ(got.size(), 3U) << piece;
    EXPECT_EQ(got[0].text, "token who");
    EXPECT_EQ(got[1].rank, 70000);
    EXPECT_EQ(got[1].text.size(), 5000U);
    EXPECT_EQ(got[2].kind, MessageKind::goodbye);
  }
}

TEST(Wire, CutsLongTextsAndRejectsInvalidBytes) {
  Decoder decoder;
  const std::string cut = encode({MessageKind::failure, 1, std::string(2 * kMaxText, 'y')});
  decoder.append(cut);
  EXPECT_EQ(decoder.next()->text.size(), kMaxText);

  for (const std::string_view external :
       {"GET / HTTP/1.1\r\n", "\x05xxxxxxxxxxxx", "\x01\0\0\0\0\xff\xff\xff\xffzz"}) {
    Decoder stranger;
    stranger.append(std::span(external.data(), std::max<std::size_t>(external.size(), 12)));
    EXPECT_THROW(stranger.next(), RuntimeError);
  }
}

TEST(Wire, RandomBytesNeverCrashOrAccumulate) {
  std::mt19937 random(7);
  for (int round = 0; round < 20000; ++round) {
    Decoder decoder;
    std::string bytes(random() % 64, '\0');
    for (auto& byte : bytes) byte = static_cast<char>(random());
    decoder.append(bytes);
    try {
      while (decoder.next()) {
      }
    } catch (const RuntimeError&) {
      // refused: fine
    }
  }
}

}  // namespace
}  // namespace ddp
