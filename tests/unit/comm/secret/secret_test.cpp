// SPDX-License-Identifier: Apache-2.0
// Tests keys, proofs, and the sources of a step's key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <map>
#include <set>
#include <string>

#include "base/errors.h"
#include "base/secret/key.h"
#include "base/secret/proof.h"
#include "ddp_runtime/comm/secret/step_secret.h"
#include "tests/unit/temporary_directory.h"

namespace ddp::comm {
namespace {

// RFC 4231, test case 2.
TEST(Hmac, MatchesTheStandard) {
  const std::string key = "Jefe";
  EXPECT_EQ(hex_of(hmac_sha256(std::as_bytes(std::span(key)), "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Key, RoundTripsThroughTextAndRejectsOtherTexts) {
  const Key key = random_key();
  EXPECT_EQ(key_from_hex(hex_of(key)), key);
  EXPECT_NE(random_key(), key);
  for (const std::string& text :
       {std::string(), std::string(63, 'a'), std::string(65, 'a'), std::string(64, 'g'),
        std::string(64, ' '), "+1" + std::string(62, '0')}) {
    EXPECT_FALSE(key_from_hex(text)) << text;
  }
}

TEST(Key, ConstantTimeComparisonIsCorrect) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
  EXPECT_TRUE(equal_in_constant_time("", ""));
}

Meeting a_meeting() {
  return {"check", "4711.0", 3, std::string(32, 'a'), std::string(32, 'b')};
}

TEST(Proof, IsValidForOneConnectionOneRoleAndOneStep) {
  const Key key = random_key();
  const Meeting meeting = a_meeting();
  const std::string proof = proof_of(key, meeting, Side::caller);
  EXPECT_TRUE(is_proof(proof, key, meeting, Side::caller));
  EXPECT_FALSE(is_proof(proof, key, meeting, Side::listener));
  EXPECT_FALSE(is_proof(proof, random_key(), meeting, Side::caller));
  EXPECT_FALSE(is_proof("", key, meeting, Side::caller));
  for (int field = 0; field < 5; ++field) {
    Meeting other = meeting;
    if (field == 0) other.purpose = "error channel";
    if (field == 1) other.step = "4711.1";
    if (field == 2) other.rank = 4;
    if (field == 3) other.callers_nonce = random_nonce();
    if (field == 4) other.listeners_nonce = random_nonce();
    EXPECT_FALSE(is_proof(proof, key, other, Side::caller)) << field;
  }
}

TEST(Proof, FieldsAreNotAmbiguous) {
  const Key key = random_key();
  Meeting one = a_meeting();
  Meeting other = a_meeting();
  one.purpose = "ab";
  one.step = "c";
  other.purpose = "a";
  other.step = "bc";
  EXPECT_NE(proof_of(key, one, Side::caller), proof_of(key, other, Side::caller));
}

TEST(Proof, EachSessionHasItsOwnKeys) {
  const Key key = random_key();
  const Meeting meeting = a_meeting();
  const std::set<std::string> all{hex_of(key), proof_of(key, meeting, Side::caller),
                                  proof_of(key, meeting, Side::listener),
                                  hex_of(session_key(key, meeting, Side::caller)),
                                  hex_of(session_key(key, meeting, Side::listener))};
  EXPECT_EQ(all.size(), 5U);
}

// ---- sources

using Variables = std::map<std::string, std::string>;

VariableLookup among(const Variables& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::optional<Munge> no_munge(const std::string& /*socket*/) {
  return std::nullopt;
}

// Behaves like munged for processes of one user.
std::optional<Munge> fake_munge(const std::string& /*socket*/) {
  const std::string mark = "MUNGE:";
  return Munge{[mark](const std::string& payload) { return mark + payload; },
               [mark](const std::string& credential) {
                 if (!credential.starts_with(mark)) throw RuntimeError("another user's");
                 return credential.substr(mark.size());
               }};
}

KeySource source_of(const Variables& variables, const MungeLoader& load = no_munge,
                    const std::string& wanted = "auto") {
  return find_secret({wanted, "4711.0", false}, among(variables), load).source();
}

const std::string kDigits(64, 'a');
const Variables kOfPlugin{{"SLURM_DDP_STEP_KEY", "4711.0:" + kDigits}};
const Variables kOfLauncher{
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_MCA_orte_precondition_transports", "ca7ff0bbc7bee925-eba55ef07a7dbe65"}};

TEST(StepSecret, ComesFromTheFirstAvailableSource) {
  Variables both = kOfPlugin;
  both.insert(kOfLauncher.begin(), kOfLauncher.end());
  EXPECT_EQ(source_of(both, fake_munge), KeySource::plugin);
  EXPECT_EQ(source_of(kOfLauncher, fake_munge), KeySource::launcher);
  EXPECT_EQ(source_of({}, fake_munge), KeySource::munge);
  EXPECT_EQ(source_of({}), KeySource::none);
  EXPECT_EQ(source_of(both, fake_munge, "munge"), KeySource::munge);
  EXPECT_EQ(source_of(both, fake_munge, "none"), KeySource::none);
}

TEST(StepSecret, RequestedSourceMustBeAvailable) {
  for (const char* wanted : {"plugin", "launcher", "munge", "file:/nowhere", "x", "", "file:"}) {
    EXPECT_THROW(source_of({}, no_munge, wanted), UsageError) << wanted;
  }
}

TEST(StepSecret, KeyOfAnotherStepIsIgnored) {
  EXPECT_EQ(source_of({{"SLURM_DDP_STEP_KEY", "4711.1:" + kDigits}}), KeySource::none);
  EXPECT_EQ(source_of({{"SLURM_DDP_STEP_KEY", kDigits}}), KeySource::none);
  EXPECT_EQ(source_of({{"SLURM_DDP_STEP_KEY", "4711.0:" + kDigits + "a"}}), KeySource::none);
}

// In ranks without mpirun, Open MPI derives the number from the job id.
TEST(StepSecret, PredictableNumberIsNotAKey) {
  const char* name = "OMPI_MCA_orte_precondition_transports";
  for (const char* text : {"0000000000001267-0000000000000001", "ca7ff0bbc7bee925", "",
                           "ca7ff0bbc7bee925eba55ef07a7dbe65x"}) {
    EXPECT_EQ(source_of({{"OMPI_COMM_WORLD_SIZE", "2"}, {name, text}}), KeySource::none) << text;
  }
  EXPECT_EQ(source_of({{name, "ca7ff0bbc7bee925-eba55ef07a7dbe65"}}), KeySource::none);
}

TEST(StepSecret, MungeConveysTheKeyOnlyToTheSameUserAndStep) {
  const auto find = [](const std::string& step, bool listens) {
    return find_secret({"auto", step, listens}, among({}), fake_munge);
  };
  const StepSecret leader = find("4711.0", true);
  EXPECT_EQ(find("4711.0", false).key_from(leader.credential()), leader.key());
  EXPECT_THROW(static_cast<void>(find("4711.1", false).key_from(leader.credential())),
               RuntimeError);
  EXPECT_THROW(static_cast<void>(find("4711.0", false).key_from("")), RuntimeError);
  EXPECT_THROW(static_cast<void>(find("4711.0", false).key()), RuntimeError);
}

class KeyFile : public testing::Test {
 protected:
  KeyFile() {
    ddp::test::write(path_, std::string(32, 'k'));
    chmod(path_.c_str(), 0600);
  }
  Key key(const std::string& step = "4711.0") const {
    return find_secret({"file:" + path_.string(), step, false}, among({}), no_munge).key();
  }

  ddp::test::TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_.path() / "key";
};

TEST_F(KeyFile, GivesEachStepItsOwnKey) {
  EXPECT_EQ(key(), key());
  EXPECT_NE(key(), key("4711.1"));
  const Key before = key();
  ddp::test::write(path_, std::string(32, 'l'));
  EXPECT_NE(key(), before);
}

TEST_F(KeyFile, MustBePrivate) {
  for (const mode_t mode : {0640U, 0604U, 0660U, 0601U}) {
    chmod(path_.c_str(), mode);
    EXPECT_THROW(key(), UsageError) << mode;
  }
}

TEST_F(KeyFile, MustBeARegularFileWithAKey) {
  ddp::test::write(path_, "short");
  EXPECT_THROW(key(), UsageError);
  const auto file = path_;
  ddp::test::write(path_, std::string(32, 'k'));
  path_ = directory_.path() / "link";
  std::filesystem::create_symlink(file, path_);
  EXPECT_THROW(key(), UsageError);
  path_ = directory_.path();
  EXPECT_THROW(key(), UsageError);
  path_ = directory_.path() / "fifo";
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THROW(key(), UsageError);
}

}  // namespace
}  // namespace ddp::comm
