#pragma once
// The precompiled header of the tests that do not link LibTorch: GoogleTest and JSON are a quarter of the
// time that one of them takes to compile. Never included by name; `lockstep_test` puts it in front.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>
