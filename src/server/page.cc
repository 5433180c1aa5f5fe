#include "server/page.h"

namespace pergola {
namespace {

// Text of models and users only ever becomes textContent.
constexpr const char* kPage = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Pergola</title>
<style>
:root { --page: #fbfaf8; --ink: #1f2421; --faint: #667069; --line: #dcdad3; --card: #ffffff; --mine: #e6efe3; --accent: #356b3f; --on-accent: #ffffff; --bad: #a4262c; color-scheme: light; }
@media (prefers-color-scheme: dark) { :root:not([data-theme=light]) { --page: #171a18; --ink: #e6e8e4; --faint: #98a29b; --line: #333935; --card: #1f2421; --mine: #27352a; --accent: #7fbf8a; --on-accent: #10140f; --bad: #ff8a80; color-scheme: dark; } }
:root[data-theme=dark] { --page: #171a18; --ink: #e6e8e4; --faint: #98a29b; --line: #333935; --card: #1f2421; --mine: #27352a; --accent: #7fbf8a; --on-accent: #10140f; --bad: #ff8a80; color-scheme: dark; }
* { box-sizing: border-box; }
body { margin: 0; height: 100vh; height: 100dvh; display: flex; flex-direction: column; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
header, #form, #settings { border-color: var(--line); border-style: solid; border-width: 0; padding: .6rem 1rem; }
header { display: flex; gap: .8rem; align-items: center; border-bottom-width: 1px; }
header h1 { font-size: 1rem; margin: 0; }
#model { color: var(--faint); flex: 1; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
button { font: inherit; white-space: nowrap; border: 1px solid var(--line); background: var(--card); color: var(--ink); border-radius: .5rem; padding: .35rem .8rem; cursor: pointer; }
button.main { min-width: 4.8rem; background: var(--accent); color: var(--on-accent); border-color: var(--accent); }
button:focus-visible, textarea:focus-visible, input:focus-visible { outline: 2px solid var(--accent); outline-offset: 1px; }
#settings { display: none; border-bottom-width: 1px; gap: .8rem; flex-wrap: wrap; background: var(--card); }
#settings.open { display: flex; }
#settings label { display: flex; flex-direction: column; font-size: .8rem; color: var(--faint); }
#settings input { font: inherit; width: 8rem; padding: .25rem .4rem; border: 1px solid var(--line); border-radius: .4rem; background: var(--page); color: var(--ink); }
#settings label.wide { flex: 1; min-width: 14rem; } #settings label.wide input { width: 100%; }
main { flex: 1; overflow-y: auto; padding: 1rem; }
main > div { max-width: 46rem; margin: 0 auto; }
.turn { margin: 0 0 1rem; padding: .7rem .9rem; border-radius: .7rem; background: var(--card); border: 1px solid var(--line); white-space: pre-wrap; overflow-wrap: anywhere; }
.turn.user { background: var(--mine); margin-left: 15%; }
.turn.error { border-color: var(--bad); color: var(--bad); }
.turn details { color: var(--faint); margin-bottom: .5rem; }
.facts { font-size: .8rem; color: var(--faint); margin-top: .4rem; white-space: normal; }
.empty { color: var(--faint); text-align: center; margin-top: 20vh; }
#form { display: flex; gap: .6rem; border-top-width: 1px; padding-inline: max(1rem, calc(50% - 23rem)); }
@media (max-width: 30rem) { header { gap: .5rem; padding-inline: .7rem; } header h1 { display: none; } #model { color: var(--ink); } header button { padding: .35rem .6rem; } #settings label { flex: 1 1 8rem; } #settings input { width: 100%; } .turn.user { margin-left: 8%; } }
textarea { flex: 1; font: inherit; resize: none; height: 4.2rem; padding: .5rem .7rem; border-radius: .6rem; border: 1px solid var(--line); background: var(--card); color: var(--ink); }
</style>
</head>
<body>
<header>
  <h1>Pergola</h1><span id="model">…</span>
  <button id="fresh" type="button">New chat</button>
  <button id="gear" type="button" aria-expanded="false" aria-controls="settings">Settings</button>
  <button id="theme" type="button" aria-label="Light or dark">◐</button>
</header>
<form id="settings" aria-label="Settings">
  <label>Temperature<input id="temperature" type="number" min="0" max="5" step="0.05" placeholder="model's own"></label>
  <label>Top p<input id="top_p" type="number" min="0" max="1" step="0.01" placeholder="model's own"></label>
  <label>Top k<input id="top_k" type="number" min="0" step="1" placeholder="model's own"></label>
  <label>Most tokens<input id="max_tokens" type="number" min="1" step="1" value="512"></label>
  <label>Seed<input id="seed" type="number" step="1" placeholder="random"></label>
  <label>API key<input id="key" type="password" autocomplete="off" placeholder="none"></label>
  <label class="wide">System message<input id="system" type="text" placeholder="none"></label>
</form>
<main aria-live="polite"><div id="turns"><p class="empty">Write something below.</p></div></main>
<form id="form">
  <textarea id="input" placeholder="Message (Enter sends, Shift+Enter breaks the line)" aria-label="Message" autofocus></textarea>
  <button id="send" class="main" type="submit">Send</button>
</form>
<script>
"use strict";
const $ = id => document.getElementById(id);
let model = null, messages = [], running = null;

function headers() {
  const all = {"Content-Type": "application/json"};
  if ($("key").value) all["Authorization"] = "Bearer " + $("key").value;
  return all;
}
async function loadModel() {
  try {
    const reply = await fetch("v1/models", {headers: headers()});
    const body = await reply.json();
    if (!reply.ok) throw new Error(body.error.message);
    model = body.data[0].id;
    $("model").textContent = model;
    document.title = model + " · Pergola";
  } catch (error) {
    model = null;
    $("model").textContent = error.message;
  }
}
// Follows what is written, unless the reader has scrolled away from it.
function keepEndInSight(change) {
  const main = document.querySelector("main"), atEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 40;
  change();
  if (atEnd) main.scrollTop = main.scrollHeight;
}
function addTurn(kind, text) {
  document.querySelector(".empty")?.remove();
  const turn = document.createElement("div");
  turn.className = "turn " + kind;
  turn.textContent = text;
  $("turns").append(turn);
  const main = document.querySelector("main");
  main.scrollTop = main.scrollHeight;
  return turn;
}
function settings() {
  const body = {};
  for (const name of ["temperature", "top_p", "top_k", "max_tokens", "seed"]) {
    if ($(name).value !== "") body[name] = Number($(name).value);
  }
  return body;
}
function makeAnswer() {
  const turn = addTurn("assistant", "");
  const thought = document.createElement("details"), label = document.createElement("summary");
  const thinking = document.createElement("div"), text = document.createElement("div"), facts = document.createElement("div");
  label.textContent = "Reasoning";
  thought.append(label, thinking);
  thought.hidden = true;
  facts.className = "facts";
  turn.append(thought, text, facts);
  return {turn, thought, thinking, text, facts};
}
async function* eventsOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const line = rest.slice(0, end);
      rest = rest.slice(end + 2);
      if (line.startsWith("data: ") && line !== "data: [DONE]") yield JSON.parse(line.slice(6));
    }
  }
}
async function ask(text) {
  if (!model) await loadModel();
  addTurn("user", text);
  const conversation = messages;  // "New chat" starts another one
  conversation.push({role: "user", content: text});
  const sent = $("system").value ? [{role: "system", content: $("system").value}, ...conversation] : conversation;
  const answer = makeAnswer();
  running = new AbortController();
  $("send").textContent = "Stop";
  let content = "", first = 0, last = 0, tokens = 0, usage = null;
  try {
    const reply = await fetch("v1/chat/completions", {method: "POST", headers: headers(), signal: running.signal,
      body: JSON.stringify({model, messages: sent, stream: true, stream_options: {include_usage: true}, ...settings()})});
    if (!reply.ok) throw new Error((await reply.json()).error.message);
    for await (const event of eventsOf(reply.body)) {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) usage = event.usage;
      const delta = event.choices[0]?.delta ?? {};
      if (!delta.content && !delta.reasoning_content) continue;
      last = performance.now();
      if (!first) first = last;
      ++tokens;
      keepEndInSight(() => {
        if (delta.reasoning_content) { answer.thought.hidden = false; answer.thinking.textContent += delta.reasoning_content; }
        if (delta.content) { content += delta.content; answer.text.textContent = content; }
        if (last > first) answer.facts.textContent = `${((tokens - 1) * 1000 / (last - first)).toFixed(1)} tokens/s`;
      });
    }
    const written = usage ? usage.completion_tokens : tokens;
    const speed = last > first ? `, ${((written - 1) * 1000 / (last - first)).toFixed(1)} tokens/s` : "";
    answer.facts.textContent = `${written} tokens${speed}`;
  } catch (error) {
    if (error.name === "AbortError") answer.facts.textContent += " · stopped";
    else { answer.turn.remove(); addTurn("error", error.message); conversation.pop(); content = null; }
  }
  if (content !== null) conversation.push({role: "assistant", content});
  running = null;
  $("send").textContent = "Send";
}
$("form").addEventListener("submit", event => {
  event.preventDefault();
  if (running) { running.abort(); return; }
  const text = $("input").value.trim();
  if (!text) return;
  $("input").value = "";
  ask(text);
});
$("input").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); if (!running) $("form").requestSubmit(); }
});
$("fresh").addEventListener("click", () => { running?.abort(); messages = []; $("turns").textContent = ""; $("input").focus(); });
$("gear").addEventListener("click", () => $("gear").setAttribute("aria-expanded", $("settings").classList.toggle("open")));
$("settings").addEventListener("submit", event => event.preventDefault());
$("key").addEventListener("change", loadModel);
$("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
});
loadModel();
</script>
</body>
</html>
)html";

}  // namespace

HttpResponse chat_page() {
  return {.content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                       "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}},
          .body = kPage};
}

}  // namespace pergola
