// Opens the gateway's page in headless Chromium while its replay runs, and reads it each second.
//
// One replay serves all cases. What it came to is kept in $INTEROP_OUT/gateway, as outcome.json, and
// two pictures of the page in the overload: light.png, which is docs/gateway.png, and dark.png.

"use strict";

const { execFileSync, spawn } = require("node:child_process");
const { writeFileSync } = require("node:fs");
const path = require("node:path");
const { chromium } = require("playwright-core");

const OUT = path.join(process.env.INTEROP_OUT, "gateway");
const OVERLOAD = "slow region and batch flood";
const RAMP = "error ramp";
// The page's charts are of three minutes; this far into the overload they show something.
const PICTURE_AFTER_MS = 35_000;
// Readings of the calm phase after which the breaker has forgotten the errors before it.
const CALM_FOR = 8;
// The replay takes two and a half minutes.
const PATIENCE_MS = 240_000;

// What is read from the page: its numbers, by their ids.
const IDS = [
  "phase", "up", "link", "p50", "p99", "first-p50", "first-p99", "hedge-rate", "win-rate", "breaker",
  "budget", "tokens-sent", "tokens-lost", "lost-share", "threshold-west", "threshold-east",
  "lane-interactive-limit", "lane-interactive-in-flight", "lane-interactive-shed", "lane-interactive-failed",
  "lane-batch-limit", "lane-batch-in-flight", "lane-batch-shed",
];

// Of a reading: what a case asks, by its name.
const CASES = {
  fills: ({ readings }) => {
    const last = readings.at(-1);
    const empty = IDS.filter((id) => !last[id] || last[id] === "-");
    return empty.length === 0 || `nothing in ${empty}`;
  },
  moves: ({ readings }) => {
    // While errors rise, and the breaker is open, a second may pass without a token.
    const seconds = pairs(readings).filter(([, after]) => after.phase !== RAMP);
    const still = seconds.filter(([before, after]) => before["tokens-sent"] === after["tokens-sent"]);
    return readings.length > 100 && still.length < 0.05 * readings.length || `${still.length} of ${readings.length} readings were as the one before`;
  },
  hedges: ({ readings }) => {
    const seen = readings.filter((it) => number(it["hedge-rate"]) > 0 && number(it["win-rate"]) > 0);
    return seen.length > 10 || `hedges and wins were seen ${seen.length} times`;
  },
  thresholds: ({ readings }) => {
    const overload = readings.filter((it) => it.phase === OVERLOAD);
    const east = overload.filter((it) => number(it["threshold-east"]) > number(it["threshold-west"]));
    return east.length > 0.5 * overload.length || `the slow region's threshold was higher ${east.length} times of ${overload.length}`;
  },
  lanes: ({ readings }) => {
    const last = readings.at(-1);
    if (!(number(last["lane-batch-shed"]) > 0)) return "no batch call was shed";
    const before = readings.findLast((it) => it.phase === "calm");
    const since = (id) => number(last[id]) - number(before[id]);
    const shed = since("lane-interactive-shed"), failed = since("lane-interactive-failed");
    return shed === 0 && failed === 0 || `${shed} interactive calls were shed, ${failed} failed in the overload`;
  },
  breaker: ({ readings }) => {
    const states = (of) => new Set(readings.filter(of).map((it) => it.breaker));
    const ramp = states((it) => it.phase === RAMP), overload = states((it) => it.phase === OVERLOAD);
    return ramp.has("open") && [...overload].join() === "closed"
      || `${[...ramp]} in the ramp, ${[...overload]} in the overload`;
  },
  own_host: ({ asked, page }) => {
    const others = asked.filter((it) => !it.startsWith(page) && !it.startsWith("data:"));
    return asked.length > 100 && others.length === 0 || `asked ${others}`;
  },
  no_error: ({ errors }) => errors.length === 0 || errors.join("; "),
  healthz: ({ health }) => health === "200 ok" || health,
  metrics: ({ metrics }) => {
    const wanted = ["hedge_hedges_total{", "hedge_lane_calls", "grpc_client_call_duration_seconds_bucket{", 'grpc_target="gateway"'];
    const missing = wanted.filter((it) => !metrics.includes(it));
    return missing.length === 0 || `no ${missing}`;
  },
  chat: ({ chat }) => chat.critical === 200 && chat.text.split(" ").length > 5 || JSON.stringify(chat),
  too_many_requests: ({ chat }) => chat.shed?.status === 429 && number(chat.shed.after) >= 1
    && JSON.parse(chat.shed.text).error === "the lane batch has no place" || JSON.stringify(chat),
  pictures: ({ pictures }) => pictures === 2 || `${pictures} pictures`,
  holds: ({ outcome, status }) => {
    const not = Object.entries(outcome.holds).filter(([, holds]) => !holds).map(([name]) => name);
    return status === 0 && not.length === 0 && Object.keys(outcome.holds).length > 5 || `exit status ${status}, not: ${not}`;
  },
};

const number = (text) => Number(String(text).replaceAll(",", ""));
const pairs = (list) => list.slice(1).map((it, index) => [list[index], it]);

main().catch((error) => { console.error(error); process.exit(1); });

async function main() {
  const wanted = process.argv[2] ?? "all";
  const names = Object.keys(CASES).filter((it) => wanted === "all" || it === wanted);
  const saw = await watch();
  let failed = 0;
  for (const name of names) {
    let verdict;
    try { verdict = CASES[name](saw); } catch (error) { verdict = String(error); }
    if (verdict !== true) failed += 1;
    console.log(`gateway    ${name}: ${verdict === true ? "ok" : `FAILED: ${verdict}`}`);
  }
  console.log(`${names.length - failed} passed, ${failed} failed`);
  process.exit(failed === 0 && names.length > 0 ? 0 : 1);
}

// Everything that the cases ask.
async function watch() {
  const gateway = start();
  let browser;
  try {
    // In a container there may be no user to lock the browser up as.
    const executablePath = execFileSync("/bin/sh", ["-c", "command -v chromium"], { encoding: "utf8" }).trim();
    browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
    const page = await gateway.page;
    const saw = { page, readings: [], asked: [], errors: [], chat: {}, pictures: 0 };
    const context = await browser.newContext({ viewport: { width: 1240, height: 900 }, colorScheme: "light" });
    const tab = await context.newPage();
    tab.on("request", (request) => saw.asked.push(request.url()));
    tab.on("pageerror", (error) => saw.errors.push(String(error)));
    tab.on("console", (message) => { if (message.type() === "error") saw.errors.push(message.text()); });
    await tab.goto(page);
    await tab.waitForFunction(() => document.getElementById("link").textContent === "live");
    saw.health = await fetch(`${page}healthz`).then(async (it) => `${it.status} ${(await it.text()).trim()}`);
    await look(tab, saw, gateway);
    // It stays until it is told to go, so that the page has somebody to ask until it is closed.
    const printed = await inTime(gateway.printed, "the replay's outcome");
    writeFileSync(path.join(OUT, "outcome.json"), printed);
    saw.outcome = JSON.parse(printed);
    await tab.close();
    gateway.child.kill("SIGINT");
    saw.status = await inTime(gateway.status, "the gateway's end");
    return saw;
  } finally {
    gateway.child.kill();
    await browser?.close();
  }
}

// Fails where the gateway hangs.
function inTime(promise, what) {
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no ${what}`)), PATIENCE_MS).unref();
  });
  return Promise.race([promise, late]);
}

// Reads the page each second of the replay, and does once what belongs to a phase.
async function look(tab, saw, gateway) {
  const deadline = Date.now() + PATIENCE_MS;
  let overload, calm = 0;
  while (Date.now() < deadline && !gateway.over) {
    const reading = await tab.evaluate((ids) => Object.fromEntries(ids.map((id) => [id, document.getElementById(id)?.textContent])), IDS);
    if (reading.phase === "serving" && saw.readings.length > 0) break;
    saw.readings.push(reading);
    calm += reading.phase === "calm";
    if (calm > CALM_FOR && saw.chat.critical === undefined) await ask(saw, "critical");
    if (reading.phase === OVERLOAD) {
      overload ??= Date.now();
      if (saw.chat.shed === undefined) {
        // More than the lane ever has places.
        const answers = await Promise.all(Array.from({ length: 60 }, () => ask(saw, "sheddable")));
        saw.chat.shed = answers.find((it) => it.status === 429) ?? null;
      }
      if (Date.now() - overload > PICTURE_AFTER_MS && saw.pictures === 0) {
        saw.metrics = await fetch(`${saw.page}metrics`).then((it) => it.text());
        for (const colorScheme of ["dark", "light"]) {
          await tab.emulateMedia({ colorScheme });
          await tab.screenshot({ path: path.join(OUT, `${colorScheme}.png`), fullPage: true });
          saw.pictures += 1;
        }
      }
    }
    await next(tab, reading.up);
  }
}

// Waits for the page's next second.
async function next(tab, up) {
  const moved = (before) => document.getElementById("up").textContent !== before;
  await tab.waitForFunction(moved, up, { timeout: 10_000 });
}

// Asks over HTTP, as somebody without gRPC does.
async function ask(saw, criticality) {
  const headers = { "x-criticality": criticality, "x-tenant": "browser" };
  const answer = await fetch(`${saw.page}chat`, { method: "POST", headers, body: "Why?" });
  const text = await answer.text();
  if (criticality === "critical") Object.assign(saw.chat, { critical: answer.status, text });
  return { status: answer.status, after: answer.headers.get("retry-after"), text };
}

// The replay: where its page is, what it prints, and how it ends.
function start() {
  const child = spawn(process.env.INTEROP_GATEWAY, ["--replay", "--json", "--serve"], { stdio: ["ignore", "pipe", "pipe"] });
  // However this ends.
  process.on("exit", () => child.kill());
  for (const signal of ["SIGHUP", "SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));
  const gateway = { child, over: false };
  let errors = "", output = "", whole;
  gateway.printed = new Promise((done) => { whole = done; });
  gateway.page = new Promise((found, failed) => {
    child.stderr.on("data", (data) => {
      errors += data;
      const page = /^page +(\S+)$/m.exec(errors);
      if (page) found(page[1]);
    });
    child.on("error", failed);
    child.on("exit", () => failed(new Error(`the gateway ended: ${errors}`)));
  });
  child.stdout.on("data", (data) => {
    output += data;
    gateway.over = output.endsWith("\n");
    if (gateway.over) whole(output);
  });
  child.stdout.on("end", () => whole(output));
  gateway.status = new Promise((done) => child.on("exit", (status) => done(status)));
  return gateway;
}
