// SPDX-License-Identifier: Apache-2.0
// Tests the deadlines and error messages of TCP connections, and the framing of control messages,
// including invalid bytes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "ddp_runtime/check/net/measure/pair_links.h"
#include "ddp_runtime/check/net/measure/tcp.h"
#include "ddp_runtime/check/net/step/control_channel.h"
#include "ddp_runtime/check/net/step/worker.h"
#include "tests/unit/error_of.h"

namespace ddp::check {
namespace {

using testing::HasSubstr;

Deadline in(int milliseconds) {
  return Clock::now() + std::chrono::milliseconds(milliseconds);
}

constexpr int kLong = 120'000;  // long enough not to expire

struct Ends {
  FileDescriptor near;
  FileDescriptor far;
};

Ends connected() {
  const Listener listener = listen_on(0);
  FileDescriptor near = connect_to("127.0.0.1", listener.port, in(kLong));
  auto far = accept_until(listener, in(kLong));
  return {std::move(near), std::move(*far)};
}

TEST(Tcp, ConnectsFromTheAddressOfARail) {
  const Listener listener = listen_on(0);
  const FileDescriptor near = connect_to("127.0.0.1", listener.port, in(kLong), {"127.0.0.2"});
  EXPECT_EQ(local_address(near.get()), "127.0.0.2");
  EXPECT_THAT(error_of([&] { connect_to("127.0.0.1", listener.port, in(kLong), {"203.0.113.1"}); }),
              HasSubstr("Cannot assign requested address"));
}

TEST(Tcp, CarriesBytes) {
  Ends ends = connected();
  std::vector<std::byte> sent(3'000'000, std::byte{7});
  std::thread sender([&] { send_all(ends.near.get(), sent, in(kLong)); });
  std::vector<std::byte> received(sent.size());
  receive_all(ends.far.get(), received, in(kLong));
  sender.join();
  EXPECT_EQ(sent, received);
  EXPECT_EQ(local_address(ends.near.get()), "127.0.0.1");
  EXPECT_EQ(remote_address(ends.far.get()), "127.0.0.1");
}

TEST(Tcp, ReportsWhyItCannotConnect) {
  std::uint16_t port = 0;
  { port = listen_on(0).port; }
  EXPECT_EQ(error_of([&] { connect_to("127.0.0.1", port, in(kLong)); }),
            "cannot connect to 127.0.0.1 port " + std::to_string(port) + ": Connection refused");
  EXPECT_THAT(error_of([&] { connect_to("name.invalid.", 80, in(kLong)); }),
              HasSubstr("cannot connect to name.invalid. port 80: "));
}

TEST(Tcp, PortInUseIsReported) {
  const Listener listener = listen_on(0);
  EXPECT_EQ(
      error_of([&] { listen_on(listener.port); }),
      "cannot listen on TCP port " + std::to_string(listener.port) + ": Address already in use");
}

TEST(Tcp, ReceiveTimeoutReportsProgress) {
  Ends ends = connected();
  std::array<std::byte, 10> data{};
  send_all(ends.far.get(), std::span(data).first(4), in(kLong));
  EXPECT_EQ(error_of([&] { receive_all(ends.near.get(), data, in(50)); }),
            "the other end sent no more data after 4 of 10 bytes");
}

// A slow node is another finding than one that hangs.
TEST(Tcp, SlowPeerIsNotSaidToBeStill) {
  Ends ends = connected();
  std::jthread sender([&](const std::stop_token& stop) {
    const std::array<std::byte, 1> byte{};
    while (!stop.stop_requested()) {
      send_all(ends.far.get(), byte, in(kLong));
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  std::vector<std::byte> data(1 << 20);
  EXPECT_THAT(
      error_of([&] { receive_all(ends.near.get(), data, in(1000)); }),
      testing::MatchesRegex("the other end was too slow: it sent [0-9]+ of 1048576 bytes in .* s"));
}

TEST(Tcp, SendTimesOutIfThePeerDoesNotRead) {
  Ends ends = connected();
  const std::vector<std::byte> data(64 << 20);
  // On a busy machine, the buffers of both ends take data until the first deadlines.
  std::string error = "too slow";
  for (int i = 0; i < 1000 && error.find("too slow") != error.npos; ++i) {
    error = error_of([&] { send_all(ends.near.get(), data, in(50)); });
  }
  EXPECT_THAT(error, HasSubstr("the other end took no more data after "));
}

TEST(Tcp, ClosedConnectionIsReported) {
  Ends ends = connected();
  ends.far.close();
  std::array<std::byte, 10> data{};
  EXPECT_EQ(error_of([&] { receive_all(ends.near.get(), data, in(kLong)); }),
            "the other end closed the connection after 0 of 10 bytes");
}

TEST(Tcp, AcceptTimesOutWithoutAConnection) {
  const Listener listener = listen_on(0);
  EXPECT_FALSE(accept_until(listener, in(20)));
}

// ---- control messages

struct Channels {
  ControlChannel near;
  FileDescriptor far;
};

Channels channels() {
  Ends ends = connected();
  return {ControlChannel(std::move(ends.near)), std::move(ends.far)};
}

void send_raw(const FileDescriptor& socket, const std::string& bytes) {
  send_all(socket.get(), std::as_bytes(std::span(bytes)), in(kLong));
}

std::string frame(const std::string& text) {
  std::string header(4, '\0');
  header[2] = static_cast<char>(text.size() >> 8U);
  header[3] = static_cast<char>(text.size());
  return header + text;
}

TEST(ControlChannel, MessagesArriveWholeForAnySplit) {
  auto [near, far] = channels();
  const std::string bytes = frame(R"({"a":1})") + frame(R"({"b":2})");
  std::thread sender([&bytes, &socket = far] {
    for (const char byte : bytes) send_raw(socket, std::string(1, byte));
  });
  EXPECT_EQ(near.receive(in(kLong))->at("a"), 1);
  EXPECT_EQ(near.receive(in(kLong))->at("b"), 2);
  sender.join();
  EXPECT_FALSE(near.receive(in(20)));  // there is no third message
}

TEST(ControlChannel, CarriesTextsAndRejectsLargeMessages) {
  Ends ends = connected();
  ControlChannel near(std::move(ends.near));
  ControlChannel far(std::move(ends.far));
  near.send({{"text", "\xff not UTF-8"}}, in(kLong));
  EXPECT_THAT(far.receive(in(kLong))->at("text").get<std::string>(), HasSubstr("not UTF-8"));
  EXPECT_THROW(near.send({{"text", std::string(ControlChannel::kMaxBytes, 'x')}}, in(kLong)),
               NetError);
}

TEST(ControlChannel, InvalidMessagesAreRejected) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\x00\x10\x00\x01", 4), frame("[1]"),
        frame("{"), frame("null"), frame("")}) {
    auto [near, far] = channels();
    send_raw(far, bytes);
    EXPECT_THROW(near.receive(in(kLong)), NetError) << bytes;
  }
}

TEST(ControlChannel, ReportsTheEndOfTheStream) {
  auto [near, far] = channels();
  send_raw(far, frame(R"({"a":1})") + "xx");
  far.close();
  EXPECT_TRUE(near.receive(in(kLong)));
  EXPECT_THROW(near.receive(in(kLong)), NetError);
}

TEST(ControlChannel, ReceivedTextsArePrintable) {
  auto [near, far] = channels();
  send_raw(far, frame(R"({"\u001bx":["a\nb",{"k":"\u001b]0;t\u0007\u00e9"}],"n":1})"));
  EXPECT_EQ(near.receive(in(kLong))->dump(), R"({"?x":["a b",{"k":"?]0;t???"}],"n":1})");
}

TEST(ControlChannel, DeepMessagesAreRejectedBeforeParsing) {
  for (const auto& [text, fine] :
       {std::pair{R"({"a":[[[[[[1]]]]]]})", true}, std::pair{R"({"a":[[[[[[[[1]]]]]]]]})", false},
        std::pair{R"({"a":"[[[[[[[[[[[[\"[[["})", true},
        std::pair{R"({"a\\":[[[[[[[[1]]]]]]]]})", false}}) {
    auto [near, far] = channels();
    send_raw(far, frame(text));
    if (fine) {
      EXPECT_TRUE(near.receive(in(kLong))) << text;
    } else {
      EXPECT_THROW(near.receive(in(kLong)), NetError) << text;
    }
  }
}

TEST(ControlChannel, SealedMessagesComeFromTheOtherEndInOrder) {
  Ends ends = connected();
  const Key one = random_key();
  const Key two = random_key();
  ControlChannel near(std::move(ends.near));
  ControlChannel far(std::move(ends.far));
  near.seal(one, two);
  far.seal(two, one);
  for (int i = 0; i < 3; ++i) {
    near.send({{"number", i}}, in(kLong));
    EXPECT_EQ(far.receive(in(kLong))->at("number"), i);
  }
  far.send({{"a", 1}}, in(kLong));
  EXPECT_EQ(near.receive(in(kLong))->at("a"), 1);
}

TEST(ControlChannel, ForgedMessagesBreakASealedChannel) {
  const Key key = random_key();
  const auto receive = [&key](const std::string& bytes) {
    auto [near, far] = channels();
    near.seal(key, key);
    send_raw(far, bytes);
    near.receive(in(kLong));
  };
  const auto sealed = [&key](std::uint64_t number, const std::string& text) {
    const Key tag = hmac_sha256(key, fmt::format("{} {}", number, text));
    return frame(text + std::string(reinterpret_cast<const char*>(tag.data()), tag.size()));
  };
  const std::string good = R"({"a":1})";
  EXPECT_NO_THROW(receive(sealed(0, good)));
  EXPECT_THROW(receive(frame(good)), NetError);                         // without a proof
  EXPECT_THROW(receive(frame(good + std::string(32, 'x'))), NetError);  // with a wrong proof
  EXPECT_THROW(receive(sealed(1, good)), NetError);                     // with a skipped number
  std::string changed = sealed(0, good);
  changed[9] = '2';
  EXPECT_THROW(receive(changed), NetError);
}

TEST(ControlChannel, MessagesOfStrangersAreLimited) {
  auto [near, far] = channels();
  near.accept_at_most(4096);
  send_raw(far, std::string("\0\0\x10\x01", 4));
  EXPECT_THROW(near.receive(in(kLong)), NetError);
}

// ---- the peers of a pair

std::string token(int number) {
  return fmt::format("{:032}", number);
}

TEST(PairLinks, StrangersAndOtherPairsAreNotAcceptedAsPeer) {
  const Listener listener = listen_on(0);
  const FileDescriptor silent = connect_to("127.0.0.1", listener.port, in(kLong));
  const FileDescriptor babbler = connect_to("127.0.0.1", listener.port, in(kLong));
  send_raw(babbler, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto other = call_peer("127.0.0.1", listener.port, token(6), in(kLong));
  const auto right = call_peer("127.0.0.1", listener.port, token(7), in(kLong));
  const auto link = await_peer(listener, token(7), in(kLong));
  std::array<std::byte, 1> word{std::byte{42}};
  right->send(word);
  word[0] = std::byte{0};
  link->receive(word);
  EXPECT_EQ(word[0], std::byte{42});
}

// If strangers were handled one after the other, they would use up the peer's time.
TEST(PairLinks, AHundredSilentStrangersDoNotBlockThePeer) {
  const Listener listener = listen_on(0);
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.push_back(connect_to("127.0.0.1", listener.port, in(kLong)));
    if (i % 2 == 0) send_raw(strangers.back(), "ddp-chk2");
  }
  const auto peer = call_peer("127.0.0.1", listener.port, token(7), in(kLong));
  EXPECT_TRUE(await_peer(listener, token(7), in(kLong)));
  EXPECT_THROW(call_peer("127.0.0.1", listener.port, "", in(kLong)), NetError);
}

// Nothing else closes these connections before the deadline.
TEST(PairLinks, TheOldestOfTooManyStrangersAreDropped) {
  constexpr int kMost = 64;
  const Listener listener = listen_on(0);
  std::vector<FileDescriptor> strangers;
  for (int i = 0; i < kMost + 36; ++i) {
    strangers.push_back(connect_to("127.0.0.1", listener.port, in(kLong)));
  }
  auto link = std::async(std::launch::async,
                         [&listener] { return await_peer(listener, token(7), in(kLong)); });
  for (int i = 0; i < 36; ++i) {
    ASSERT_TRUE(wait_for(strangers[static_cast<std::size_t>(i)].get(), POLLIN, in(kLong / 2))) << i;
  }
  for (int i = 36; i < kMost + 36; ++i) {
    EXPECT_FALSE(wait_for(strangers[static_cast<std::size_t>(i)].get(), POLLIN, in(0))) << i;
  }
  const auto peer = call_peer("127.0.0.1", listener.port, token(7), in(kLong));
  EXPECT_TRUE(link.get());
}

TEST(PairLinks, MissingPeerIsReported) {
  const Listener listener = listen_on(0);
  EXPECT_EQ(error_of([&] { await_peer(listener, token(7), in(30)); }),
            "the other end did not connect in time");
}

// A tool that starts its server in the background does not detect that the server exits.
TEST(PairLinks, PeerThatExitsDuringTheExchangeIsAnError) {
  const Listener listener = listen_on(0);
  auto server = std::async(std::launch::async, [&listener] {
    const auto link = await_peer(listener, token(1), in(kLong));
    std::array<std::byte, 8> word{};
    link->receive(word);  // the peer exits after this
  });
  const auto link = call_peer("127.0.0.1", listener.port, token(1), in(kLong));
  EXPECT_THROW(exchange(*link, {true, 1 << 20, 1, {}}), NetError);
  server.get();
}

// ---- the worker

TEST(Worker, RunsJobsInOrderAndStops) {
  Worker worker;
  const auto command = std::make_shared<std::string>();
  worker.post([command] { *command += "a"; });
  worker.post([command] { *command += "b"; });
  EXPECT_TRUE(worker.finish(std::chrono::milliseconds(kLong)));
  EXPECT_EQ(*command, "ab");
}

TEST(Worker, HangingJobIsAbandoned) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto done = std::make_shared<std::promise<void>>();
  {
    Worker worker;
    worker.post([opened = gate->get_future().share(), done] {
      opened.wait();
      done->set_value();
    });
    EXPECT_FALSE(worker.finish(std::chrono::milliseconds(20)));
  }
  gate->set_value();
  done->get_future().wait();  // the thread outlived the worker and still had all its data
}

}  // namespace
}  // namespace ddp::check
