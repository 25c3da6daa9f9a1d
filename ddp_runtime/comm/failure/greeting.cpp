#include "ddp_runtime/comm/failure/greeting.h"

#include <span>
#include <string_view>
#include <utility>

namespace ddp::comm {
namespace {

constexpr std::size_t kMostWho = 300;

Key key_of(const std::string& token) {
  return hmac_sha256(std::as_bytes(std::span(token)), "error channel");
}

// Before and behind the first space; nullopt if there is none.
struct TwoWords {
  std::string first;
  std::string rest;
};
std::optional<TwoWords> two_words(const std::string& text) {
  const auto space = text.find(' ');
  if (space == std::string::npos) return std::nullopt;
  return TwoWords{text.substr(0, space), text.substr(space + 1)};
}

Meeting meeting_of_channel(int rank, std::string callers_nonce) {
  return {"error channel", {}, rank, std::move(callers_nonce), {}};
}

}  // namespace

std::optional<Message> HubGreeting::answer(const Message& message, const std::string& token) {
  if (message.kind != MessageKind::hello || done_) return std::nullopt;
  const Key key = key_of(token);
  if (asked_) {
    done_ = is_proof(message.text, key, meeting_, Side::caller);
    return done_ ? std::optional(Message{MessageKind::welcome, 0, {}}) : std::nullopt;
  }
  const auto words = two_words(message.text);
  if (!words || words->first.size() != kNonceCharacters) return std::nullopt;
  asked_ = true;
  who_ = words->rest.substr(0, kMostWho);
  meeting_ = meeting_of_channel(message.rank, words->first);
  meeting_.listeners_nonce = random_nonce();
  return Message{MessageKind::welcome, 0,
                 meeting_.listeners_nonce + " " + proof_of(key, meeting_, Side::listener)};
}

RankGreeting::RankGreeting(const std::string& token, int rank, std::string who)
    : key_(key_of(token)),
      meeting_(meeting_of_channel(rank, random_nonce())),
      who_(std::move(who)) {}

Message RankGreeting::hello() const {
  return {MessageKind::hello, meeting_.rank, meeting_.callers_nonce + " " + who_};
}

std::optional<Message> RankGreeting::answer(const Message& message) {
  if (message.kind != MessageKind::welcome) return std::nullopt;
  if (proved_) {
    done_ = true;
    return std::nullopt;
  }
  const auto words = two_words(message.text);
  if (!words) return std::nullopt;
  meeting_.listeners_nonce = words->first;
  if (!is_proof(words->rest, key_, meeting_, Side::listener)) return std::nullopt;
  proved_ = true;
  return Message{MessageKind::hello, meeting_.rank, proof_of(key_, meeting_, Side::caller)};
}

bool greet(Connection& connection, RankGreeting greeting, std::chrono::milliseconds patience) {
  std::optional<Message> next = greeting.hello();
  while (next) {
    if (!connection.send(*next)) return false;
    const auto answer = connection.await(patience);
    if (!answer) return false;
    next = greeting.answer(*answer);
  }
  return greeting.done();
}

}  // namespace ddp::comm
