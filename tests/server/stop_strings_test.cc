#include "server/stop_strings.h"

#include <gtest/gtest.h>

namespace pergola {
namespace {

/// What comes out when `text` is pushed in pieces of `size` bytes.
std::string pushed(StopStrings& stop, const std::string& text, std::size_t size) {
  std::string out;
  for (std::size_t at = 0; at < text.size() && !stop.found(); at += size) out += stop.push(text.substr(at, size));
  return out + stop.finish();
}

TEST(StopStrings, EndBeforeTheFirstOneHoweverThePiecesFall) {
  for (std::size_t size = 1; size < 12; ++size) {
    StopStrings stop({"###", "the end"});
    EXPECT_EQ(pushed(stop, "a ## b # the en the end ###", size), "a ## b # the en ") << size;
    EXPECT_EQ(stop.found(), "the end");
  }
}

TEST(StopStrings, WhatOnlyLooksLikeOneComesOutInTheEnd) {
  StopStrings stop({"###"});
  EXPECT_EQ(stop.push("a##"), "a");
  EXPECT_EQ(stop.push("b##"), "##b");
  EXPECT_EQ(stop.finish(), "##");
  EXPECT_FALSE(stop.found());
}

TEST(StopStrings, TheEarliestWins) {
  StopStrings stop({"cd", "bc"});
  EXPECT_EQ(stop.push("abcd"), "a");
  EXPECT_EQ(stop.found(), "bc");
}

TEST(StopStrings, NoneHoldNothingBack) {
  StopStrings stop({});
  EXPECT_EQ(stop.push("abc"), "abc");
}

}  // namespace
}  // namespace pergola
