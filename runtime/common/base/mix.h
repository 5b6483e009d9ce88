#pragma once
// Hash functions for random numbers that depend only on their inputs, not on earlier numbers. Pure.

#include <cstdint>

namespace lockstep {

// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): each input bit changes each output bit with
// probability one half.
[[nodiscard]] inline uint64_t Mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Combines three numbers.
[[nodiscard]] inline uint64_t MixBits(uint64_t a, uint64_t b, uint64_t c) { return Mix(Mix(Mix(a) ^ b) ^ c); }

}  // namespace lockstep
