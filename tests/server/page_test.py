#!/usr/bin/env python3
"""The chat page in a headless Chromium: stream, stop button, settings, tokens per second, themes, a phone's width.

    page_test.py PERGOLA MODEL_FOLDER [FOLDER_FOR_SCREENSHOTS]

Exit code 77 means skipped: Playwright (`.ci/run clients` installs it) or Debian's chromium is not there.
"""

import os
import re
import shutil
import subprocess
import sys

CHROMIUM = shutil.which("chromium")
try:
    from playwright.sync_api import expect, sync_playwright
except ImportError as error:
    print(f"SKIPPED: {error}; `.ci/run clients` installs it", file=sys.stderr)
    sys.exit(77)
if CHROMIUM is None:
    print("SKIPPED: there is no chromium here", file=sys.stderr)
    sys.exit(77)


class Checker:
    def __init__(self, browser, url, shots):
        self.browser, self.url, self.shots = browser, url, shots

    def open(self, **options):
        page = self.browser.new_context(**options).new_page()
        self.errors, self.bodies, foreign = [], [], []
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url.startswith(self.url) else foreign.append(request.url))
        page.on("request", lambda request: self.bodies.append(request.post_data_json) if request.method == "POST" else None)
        page.goto(self.url)
        expect(page.locator("#model")).to_have_text("story")
        assert not foreign, foreign
        return page

    def shoot(self, page, name):
        if self.shots:
            page.screenshot(path=os.path.join(self.shots, name + ".png"))

    def conversation(self):
        page = self.open(viewport={"width": 1000, "height": 700})
        page.click("#gear")
        page.fill("#max_tokens", "24")
        page.fill("#temperature", "0")
        page.fill("#system", "Be brief.")
        page.fill("#input", "Tell me about <b>the sea</b>.")
        page.press("#input", "Enter")
        expect(page.locator(".turn.assistant .facts")).to_have_text(re.compile(r"^24 tokens, [0-9.]+ tokens/s$"), timeout=60000)
        expect(page.locator(".turn.user")).to_have_text("Tell me about <b>the sea</b>.")
        sent = self.bodies[-1]
        assert sent["max_tokens"] == 24 and sent["temperature"] == 0 and sent["messages"][0] == {"role": "system", "content": "Be brief."}, sent
        self.shoot(page, "light")
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != background
        self.shoot(page, "dark")

        # Stop in the middle: the answer so far stays, the next one may be asked for.
        page.fill("#max_tokens", "4000")
        page.fill("#temperature", "1.5")
        page.fill("#input", "Go on.")
        page.press("#input", "Enter")
        expect(page.locator("#send")).to_have_text("Stop")
        expect(page.locator(".turn.assistant .facts").last).to_have_text(re.compile("tokens/s"), timeout=60000)
        page.click("#send")
        expect(page.locator("#send")).to_have_text("Send")
        expect(page.locator(".turn.assistant .facts").last).to_have_text(re.compile("stopped$"))
        assert [message["role"] for message in self.bodies[-1]["messages"]] == ["system", "user", "assistant", "user"]

        # A new chat forgets everything, also what was being written.
        page.fill("#input", "And again.")
        page.press("#input", "Enter")
        expect(page.locator("#send")).to_have_text("Stop")
        page.click("#fresh")
        expect(page.locator("#send")).to_have_text("Send")
        page.fill("#max_tokens", "4")
        page.fill("#input", "Hello.")
        page.press("#input", "Enter")
        expect(page.locator(".turn.assistant .facts")).to_have_text(re.compile("^4 tokens"), timeout=60000)
        assert [message["role"] for message in self.bodies[-1]["messages"]] == ["system", "user"], self.bodies[-1]
        assert not self.errors, self.errors

        # What the server refuses is shown.
        page.fill("#temperature", "-1")
        page.fill("#input", "Hello.")
        page.press("#input", "Enter")
        expect(page.locator(".turn.error")).to_have_text(re.compile("temperature must be from 0"))

    def phone(self):
        page = self.open(viewport={"width": 375, "height": 667}, device_scale_factor=2, is_mobile=True, has_touch=True, color_scheme="dark")
        page.click("#gear")
        page.fill("#max_tokens", "12")
        page.click("#gear")
        page.fill("#input", "Tell me about the sea.")
        page.click("#send")
        expect(page.locator(".turn.assistant .facts")).to_have_text(re.compile("tokens"), timeout=60000)
        assert page.evaluate("document.documentElement.scrollWidth") <= 375, "it must not scroll sideways"
        assert page.locator("#model").bounding_box()["width"] > 20, "the model's name is hidden"
        self.shoot(page, "phone")


def main():
    program, folder = sys.argv[1:3]
    environment = {name: value for name, value in os.environ.items() if name != "PERGOLA_API_KEY"}
    command = [program, "serve", folder, "--port", "0", "--context", "8192"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        url = next(found[1] for line in server.stderr if (found := re.search(r"serving '.*' on (http://\S+)", line)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            checker = Checker(browser, url, sys.argv[3] if len(sys.argv) > 3 else None)
            checker.conversation()
            checker.phone()
            browser.close()
        print("the chat page works")
    finally:
        server.terminate()
        server.stderr.read()
        server.wait(timeout=60)


main()
