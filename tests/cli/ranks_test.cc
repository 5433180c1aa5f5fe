#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace pergola {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kStory;
using testing::Outcome;
using testing::pergola;

TEST(RanksOption, WritesTheSameText) {
  const auto text = [](const std::string& ranks) {
    const Outcome outcome = pergola({"run", kStory, "--raw", "-p", "Once upon a time", "-n", "24", "--greedy",
                                     "--ranks", ranks, "--precision", "exact", "--context", "256"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    if (ranks != "1") {
      EXPECT_THAT(outcome.err, HasSubstr("ranks: " + ranks));
    }
    return outcome.out;
  };
  const std::string one = text("1");
  EXPECT_GT(one.size(), 40u);
  EXPECT_EQ(text("2"), one);
  EXPECT_EQ(text("4"), one);
}

TEST(RanksOption, WhatCannotBeCutIsRefusedWithTheLegalNumbers) {
  const Outcome outcome = pergola({"run", kStory, "--raw", "-p", "x", "--ranks", "3"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("cannot be cut for 3 ranks"), HasSubstr("can be cut for: 1, 2, 4")));
}

TEST(RanksOption, GpusNeedABackendThatHasSome) {
  const Outcome outcome = pergola({"run", kStory, "--raw", "-p", "x", "--gpus", "0,1"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("--gpus"), HasSubstr("--backend cuda")));
  EXPECT_THAT(pergola({"run", kStory, "--raw", "-p", "x", "--backend", "cuda", "--gpus", "0,b"}).err,
              HasSubstr("'0,b' is no list of GPUs"));
}

TEST(InspectGpus, ShowsWhoHoldsWhat) {
  const Outcome report = pergola({"inspect", kStory, "--gpus", "2"});
  EXPECT_EQ(report.code, 0) << report.err;
  EXPECT_THAT(report.out, AllOf(HasSubstr("2 ranks, experts spread (this model can be cut for 1, 2, 4)"),
                                HasSubstr("query heads"), HasSubstr("all-reduces")));
  const auto json = nlohmann::json::parse(pergola({"inspect", kStory, "--gpus", "2", "--json"}).out);
  const auto& shards = json.at("shards");
  EXPECT_EQ(shards.at("ranks").size(), 2u);
  EXPECT_THAT(shards.at("legal").get<std::vector<int>>(), ElementsAre(1, 2, 4));
  bool found = false;
  for (const auto& slice : shards.at("ranks")[1].at("slices")) {
    if (slice.at("tensor") != "lm_head") continue;
    EXPECT_EQ(slice.at("axis"), "outputs");
    EXPECT_EQ(slice.at("ranges"), nlohmann::json::parse("[[2048, 2048]]"));
    found = true;
  }
  EXPECT_TRUE(found);
  const Outcome refused = pergola({"inspect", kStory, "--gpus", "3"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.out, HasSubstr("can be cut for: 1, 2, 4"));
}

}  // namespace
}  // namespace pergola
