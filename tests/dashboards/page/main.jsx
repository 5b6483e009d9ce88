// Called by draw.mjs in the browser: draw({dashboard, answers, from, to, step, width, light}) shows one dashboard.
import { createTheme, dateTime, ThemeContext } from '@grafana/data';
import { GlobalStyles, PortalContainer } from '@grafana/ui';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';
import { BrowserRouter } from 'react-router-dom';
import 'uplot/dist/uPlot.min.css';  // without it the plots slide out of their panels

import { Dashboard } from './dashboard';
import { prepared } from './data';
import * as stat from './panels/stat';
import * as table from './panels/table';
import * as timeseries from './panels/timeseries';

const KINDS = { stat, table, timeseries };

// As Grafana's Prometheus data source does: times that are no more than a step apart are one event, with a beginning and an end.
function events(dashboard, answers, theme) {
  return dashboard.annotations.list.filter(({ enable }) => enable).flatMap(({ name, iconColor, step }) => (
    answers.annotations[name].flatMap(({ values }) => {
      const found = [];
      for (const time of values.filter(([, value]) => Number(value) > 0).map(([seconds]) => seconds * 1000)) {
        const last = found.at(-1);
        if (last && last.to + parseInt(step, 10) * 1000 >= time) {
          last.to = time;
        } else {
          found.push({ from: time, to: time, colour: theme.visualization.getColorByName(iconColor) });
        }
      }
      return found;
    })));
}

// Grafana's styles and fonts, before anything is drawn: a canvas is not drawn again when a font arrives.
async function styled(theme) {
  flushSync(() => createRoot(document.getElementById('styles')).render(
    <ThemeContext.Provider value={theme}><GlobalStyles /></ThemeContext.Provider>));
  document.body.getBoundingClientRect();  // only now are the fonts known
  await Promise.all(['12px Inter', '500 12px Inter'].map((font) => document.fonts.load(font)));
}

window.draw = async ({ dashboard, answers, from, to, step, width, light }) => {
  const theme = createTheme({ colors: { mode: light ? 'light' : 'dark' } });
  const timeRange = { from: dateTime(from * 1000), to: dateTime(to * 1000), raw: { from: 'now-1h', to: 'now' } };
  const data = {};
  for (const panel of dashboard.panels.filter(({ type }) => type !== 'row')) {
    const kind = KINDS[panel.type];
    if (!kind) {
      throw new Error(`panel ${panel.title}: ${panel.type} is not drawn; there is ${Object.keys(KINDS).join(', ')}`);
    }
    const found = answers.panels[panel.title];
    if (!found || panel.targets.some(({ refId }) => !(refId in found))) {
      throw new Error(`panel ${panel.title}: not in the answers; ask again with record.py`);
    }
    data[panel.id] = await prepared(panel, kind, found, step, theme);
  }
  const annotations = events(dashboard, answers, theme);
  await styled(theme);
  createRoot(document.getElementById('root')).render(
    <ThemeContext.Provider value={theme}>
      <BrowserRouter>
        <Dashboard {...{ dashboard, answers, data, width, theme, timeRange, annotations }} kinds={KINDS} />
        <PortalContainer />
      </BrowserRouter>
    </ThemeContext.Provider>);
};
