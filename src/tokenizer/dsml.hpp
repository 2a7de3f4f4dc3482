// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

// The tags of calls of tools, as prompts are written with them and answers are read by them: the model's own words.
namespace bathys::tokenizer::dsml {

inline constexpr std::string_view kTagOpen = "<｜DSML｜";
inline constexpr std::string_view kTagClose = "</｜DSML｜";

// A block of calls; its beginning as far as the line break is what a prompt ends in when a call is demanded.
inline constexpr std::string_view kCallsOpen = "\n\n<｜DSML｜ calls>\n";
inline constexpr std::string_view kCallsClose = "</｜DSML｜ calls>";
inline constexpr std::string_view kOldCallsClose = "</｜DSML｜tool_calls>";  // of the release before

// Behind the opening mark and a space: a call, an argument of it, and whether that is a string or JSON.
inline constexpr std::string_view kCallName = "invoke name=\"";
inline constexpr std::string_view kCallEnd = "</｜DSML｜ invoke>";
inline constexpr std::string_view kArgumentName = "parameter name=\"";
inline constexpr std::string_view kArgumentEnd = "</｜DSML｜ parameter>";
inline constexpr std::string_view kIsString = "string=\"true\">";
inline constexpr std::string_view kIsJson = "string=\"false\">";

}  // namespace bathys::tokenizer::dsml
