// A dashboard as Grafana lays it out: its variables and annotations, then rows and panels on a grid of 24 columns.
import { dateTime } from '@grafana/data';
import { Icon, PanelChrome } from '@grafana/ui';

const COLUMNS = 24, CELL = 30, GAP = 8, MARGIN = 16;

function Header({ dashboard, variables, from, to, theme }) {
  const chip = (name, value) => (
    <span key={name} style={{ border: `1px solid ${theme.colors.border.medium}`, borderRadius: 2, padding: '5px 8px' }}>
      <span style={{ color: theme.colors.text.secondary }}>{name} </span>{value}
    </span>
  );
  const time = (seconds) => dateTime(seconds * 1000).utc().format('YYYY-MM-DD HH:mm:ss');
  const shown = dashboard.templating.list.filter(({ name }) => name in variables);
  return (
    <div style={{ padding: `${GAP}px 0` }}>
      <div style={{ display: 'flex', justifyContent: 'space-between', ...theme.typography.h4, marginBottom: 12 }}>
        <span>{dashboard.title}</span>
        <span style={{ ...theme.typography.body }}>{time(from)} to {time(to)} UTC</span>
      </div>
      <div style={{ display: 'flex', gap: 16 }}>
        {shown.map(({ name, label }) => chip(label, variables[name]))}
        {dashboard.annotations.list.map(({ name, enable, iconColor }) => (
          <span key={name} style={{ padding: 6 }}>
            <span style={{ color: theme.visualization.getColorByName(iconColor) }}>{enable ? '●' : '○'}</span> {name}
          </span>
        ))}
      </div>
    </div>
  );
}

function place({ x, y, w, h }, width) {
  const column = (width - GAP * (COLUMNS - 1)) / COLUMNS;
  return { left: x * (column + GAP), top: y * (CELL + GAP), width: w * column + (w - 1) * GAP, height: h * CELL + (h - 1) * GAP };
}

function Row({ title, theme, box }) {
  return (
    <div style={{ position: 'absolute', ...box, display: 'flex', alignItems: 'center', ...theme.typography.h6 }}>
      <Icon name="angle-down" /> {title}
    </div>
  );
}

function One({ panel, kind, data, box, ...rest }) {
  const empty = panel.type !== 'stat' && !data.frames.some(({ length }) => length);
  return (
    <div style={{ position: 'absolute', ...box }}>
      <PanelChrome title={panel.title} description={panel.description} width={box.width} height={box.height}
        padding={panel.type === 'stat' ? 'none' : 'md'}>
        {(width, height) => (empty
          ? <div style={{ width, height, display: 'grid', placeItems: 'center' }} data-empty={panel.title}>No data</div>
          : <kind.Panel {...rest} {...data} options={panel.options} width={width} height={height} />)}
      </PanelChrome>
    </div>
  );
}

export function Dashboard({ dashboard, answers, kinds, data, width, theme, timeRange, annotations }) {
  const rows = Math.max(...dashboard.panels.map(({ gridPos }) => gridPos.y + gridPos.h));
  return (
    <div style={{ width: width + 2 * MARGIN, padding: MARGIN, background: theme.colors.background.canvas }}>
      <Header dashboard={dashboard} variables={answers.variables} from={timeRange.from.unix()} to={timeRange.to.unix()} theme={theme} />
      <div style={{ position: 'relative', height: rows * (CELL + GAP) }}>
        {dashboard.panels.map((panel) => {
          const box = place(panel.gridPos, width);
          return panel.type === 'row'
            ? <Row key={panel.id} title={panel.title} theme={theme} box={box} />
            : <One key={panel.id} panel={panel} kind={kinds[panel.type]} data={data[panel.id]} box={box} theme={theme}
                timeRange={timeRange} annotations={annotations} />;
        })}
      </div>
    </div>
  );
}
