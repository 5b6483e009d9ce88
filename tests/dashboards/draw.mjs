#!/usr/bin/env node
// Draws the chart's dashboards as Grafana would, from the answers that record.py keeps: FOLDER/training-job.png, fleet.png, operator.png.
//
//     tests/dashboards/draw.mjs ANSWERS.json FOLDER [--width 1600] [--height PIXELS] [--light]
//
// --height cuts off what is below. Panels are Grafana's own React components, in headless Chromium; run install.sh before. $CHROMIUM
// names another browser.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import path from 'node:path';
import { parseArgs } from 'node:util';

const HERE = import.meta.dirname;
const DASHBOARDS = path.resolve(HERE, '../../charts/lockstep/dashboards');
const FONTS = '/usr/share/fonts/opentype/inter';
const LIMIT_MS = 120_000;

function fail(message) {
  console.error(`draw.mjs: ${message}`);
  process.exit(1);
}

function installed() {
  const site = execFileSync(path.join(HERE, 'install.sh'), ['--print'], { encoding: 'utf8' }).trim();
  if (!fs.existsSync(path.join(site, '.complete')) || !fs.existsSync(FONTS)) {
    fail(`Grafana's components or its font are not installed; run ${path.join(HERE, 'install.sh')}`);
  }
  return site;
}

// One script. Grafana's ES modules lack exports that its CommonJS build has; editors and Node's own modules are never reached.
async function bundled(site, require) {
  const result = await require('esbuild').build({
    entryPoints: [path.join(HERE, 'page/main.jsx')], bundle: true, write: false, outdir: site, format: 'iife', jsx: 'automatic',
    nodePaths: [path.join(site, 'node_modules')], define: { 'process.env.NODE_ENV': '"production"', global: 'window' }, logLevel: 'error',
    loader: Object.fromEntries(['.svg', '.png', '.gif', '.ttf', '.woff', '.woff2'].map((end) => [end, 'dataurl'])),
    plugins: [{
      name: 'what no panel needs',
      setup(build) {
        build.onResolve({ filter: /^@grafana\/(ui|data|schema)$/ }, ({ path: name }) => (
          { path: path.join(site, 'node_modules', name, 'dist/cjs/index.cjs') }));
        build.onResolve({ filter: /monaco|^(fs|path|crypto|util|stream|buffer|os|url)$/ }, ({ path: name }) => (
          { path: name, namespace: 'empty' }));
        build.onLoad({ filter: /.*/, namespace: 'empty' }, () => ({ contents: 'module.exports = {}' }));
      },
    }],
  });
  return Object.fromEntries(result.outputFiles.map(({ path: file, text }) => [`/${path.basename(file)}`, text]));
}

// The browser wants an origin; a page from the disk has none. Grafana's icons come from the package, by the paths that its components
// ask for; its font, which the package lacks, from Debian.
async function served(files, icons) {
  const page = '<!doctype html><html class="theme-dark"><head><meta charset="utf-8"><link rel="stylesheet" href="/main.css"></head>'
    + '<body><div id="styles"></div><div id="root"></div><script src="/main.js"></script></body></html>';
  const types = { '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
  const onDisk = {
    '.svg': (url) => path.join(icons, path.normalize(url)),
    '.woff2': (url) => path.join(FONTS, `${path.basename(url, '.woff2')}.otf`),
  };
  const server = http.createServer(({ url }, answer) => {
    const file = onDisk[path.extname(url)]?.(url);
    const text = url === '/' ? page : files[url] ?? (file && fs.existsSync(file) ? fs.readFileSync(file) : undefined);
    answer.writeHead(text === undefined ? 404 : 200, { 'content-type': types[path.extname(url)] ?? 'text/html' }).end(text);
  });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  return server;
}

async function drawn(browser, url, input, file, height) {
  const tab = await browser.newPage();
  const broken = new Promise((_, refuse) => { tab.on('pageerror', refuse); });
  const shown = async () => {
    await tab.setViewport({ width: input.width + 32, height: 1000 });
    await tab.goto(url, { timeout: LIMIT_MS });
    await tab.evaluate((given) => window.draw(given), input);
    await tab.waitForSelector('canvas, table', { timeout: LIMIT_MS });
    await tab.waitForNetworkIdle({ timeout: LIMIT_MS });
  };
  await Promise.race([shown(), broken]);
  const whole = await tab.$eval('#root > *', (one) => one.getBoundingClientRect().toJSON());
  const clip = { x: whole.x, y: whole.y, width: whole.width, height: Math.min(whole.height, height) };
  await tab.screenshot({ path: file, captureBeyondViewport: true, clip });
  const empty = await tab.$$eval('[data-empty]', (found) => found.map((one) => one.dataset.empty));
  console.log(`${file}${empty.length ? `; no data: ${empty.join(', ')}` : ''}`);
  await tab.close();
}

function wanted() {
  const { values, positionals } = parseArgs({ allowPositionals: true, options: {
    width: { type: 'string', default: '1600' }, height: { type: 'string', default: 'Infinity' }, light: { type: 'boolean', default: false } } });
  if (positionals.length !== 2) {
    fail('usage: draw.mjs ANSWERS.json FOLDER [--width 1600] [--height PIXELS] [--light]');
  }
  const [width, height] = [values.width, values.height].map(Number);
  if (!(width >= 600 && width <= 10000)) {
    fail(`--width ${values.width}: must be 600 to 10000`);
  }
  if (!(height >= 100)) {
    fail(`--height ${values.height}: must be 100 or more`);
  }
  return { answersFile: positionals[0], folder: positionals[1], width, height, light: values.light };
}

async function main() {
  const { answersFile, folder, width, height, light } = wanted();
  const { from, to, step, dashboards } = JSON.parse(fs.readFileSync(answersFile, 'utf8'));
  const site = installed();
  const require = createRequire(path.join(site, 'package.json'));
  const server = await served(await bundled(site, require), path.join(site, 'node_modules/@grafana/ui/dist'));
  const browser = await require('puppeteer-core').launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--hide-scrollbars', '--force-color-profile=srgb'], protocolTimeout: LIMIT_MS });
  fs.mkdirSync(folder, { recursive: true });
  try {
    for (const [name, answers] of Object.entries(dashboards)) {
      const dashboard = JSON.parse(fs.readFileSync(path.join(DASHBOARDS, name), 'utf8'));
      const input = { dashboard, answers, from, to, step, width, light };
      await drawn(browser, `http://127.0.0.1:${server.address().port}/`, input, path.join(folder, name.replace('.json', '.png')), height);
    }
  } finally {
    await browser.close();
    server.close();
  }
}

main().catch((problem) => fail(problem.message));
