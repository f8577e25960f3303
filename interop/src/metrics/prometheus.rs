//! A Prometheus of our own, that scrapes this process: started on a free port, asked by its query API.

use std::{
    collections::{BTreeMap, BTreeSet},
    error::Error,
    fs::{self, File},
    path::Path,
    process::Stdio,
    time::Duration,
};

use interop::http::{Api, escaped, free_ports};
use serde_json::Value;
use tokio::{
    process::{Child, ChildStdin, Command},
    time::{sleep, timeout},
};

/// How long a scrape may take to come, and Prometheus to start; only a failing check waits for it.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// The job by which it knows us.
const JOB: &str = "tonic-hedge";

/// Runs until it is stopped, or until this process ends: its standard input closes then.
pub(crate) struct Prometheus {
    api: Api,
    input: ChildStdin,
    child: Child,
}

/// Seconds since 1970, as Prometheus has them.
pub(crate) type Time = f64;

/// The labels of a series but for its name, and its value or values.
pub(crate) type Series<T> = (BTreeMap<String, String>, T);

impl Prometheus {
    /// Starts one in `folder` that scrapes `127.0.0.1:port` each second, and waits until it answers.
    pub(crate) async fn start(folder: &Path, port: u16) -> Result<Self, Box<dyn Error>> {
        fs::create_dir_all(folder)?;
        let config = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\n\
             scrape_configs: [{{job_name: {JOB}, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}]\n"
        );
        fs::write(folder.join("prometheus.yml"), config)?;
        let log = folder.join("log");
        let log_file = File::create(&log)?;
        let [own] = free_ports()?;
        let mut child = Command::new("interop/metrics/start")
            .arg(folder)
            .arg(own.to_string())
            .stdin(Stdio::piped())
            .stdout(log_file.try_clone()?)
            .stderr(log_file)
            .spawn()?;
        let input = child.stdin.take().ok_or("no input")?;
        let mut prometheus = Self {
            api: Api::on(own),
            input,
            child,
        };
        let ready = async {
            while prometheus
                .api
                .get("/api/v1/status/buildinfo")
                .await
                .is_err()
            {
                if let Some(status) = prometheus.child.try_wait()? {
                    let why = fs::read_to_string(&log)?;
                    return Err(format!("Prometheus ended: {status}: {why}").into());
                }
                sleep(PAUSE).await;
            }
            Ok::<_, Box<dyn Error>>(())
        };
        timeout(PATIENCE, ready)
            .await
            .map_err(|_| "Prometheus does not answer")??;
        Ok(prometheus)
    }

    /// Waits for a scrape that began after now, and says when it was.
    pub(crate) async fn scraped(&self) -> Result<Time, Box<dyn Error>> {
        let asked = self.now().await?;
        // Of a selector alone it is when its sample was taken; of anything else, now.
        let query = format!("timestamp(up{{job=\"{JOB}\"}})");
        let scraped = async {
            loop {
                if let Some((_, at)) = self.instant(&query, self.now().await?).await?.first()
                    && *at > asked
                {
                    return Ok(*at);
                }
                sleep(PAUSE).await;
            }
        };
        let scraped = timeout(PATIENCE, scraped).await;
        scraped.map_err(|_| "no scrape comes")?
    }

    /// Where people look.
    pub(crate) fn url(&self) -> String {
        self.api.url()
    }

    /// What time it is there.
    async fn now(&self) -> Result<Time, Box<dyn Error>> {
        let time = self.get("/api/v1/query?query=time()").await?;
        value(&time["result"])
    }

    /// What a query comes to at one time.
    pub(crate) async fn instant(
        &self,
        query: &str,
        at: Time,
    ) -> Result<Vec<Series<f64>>, Box<dyn Error>> {
        let path = format!("/api/v1/query?time={at}&query={}", escaped(query));
        let data = self.get(&path).await?;
        match data["resultType"].as_str() {
            Some("vector") => each(&data["result"], |series| value(&series["value"])),
            _ => Err(format!("{query} is no vector").into()),
        }
    }

    /// What a query comes to each second from one time to another.
    pub(crate) async fn range(
        &self,
        query: &str,
        (from, to): (Time, Time),
    ) -> Result<Vec<Series<Vec<f64>>>, Box<dyn Error>> {
        let query = escaped(query);
        let path = format!("/api/v1/query_range?start={from}&end={to}&step=1&query={query}");
        let data = self.get(&path).await?;
        each(&data["result"], |series| {
            list(&series["values"]).iter().map(value).collect()
        })
    }

    /// The one number that a query comes to at a time; 0 if it finds nothing.
    pub(crate) async fn number(&self, query: &str, at: Time) -> Result<f64, Box<dyn Error>> {
        match &self.instant(query, at).await?[..] {
            [] => Ok(0.0),
            [(_, value)] => Ok(*value),
            many => Err(format!("{query}: {} series", many.len()).into()),
        }
    }

    /// The values of a label in all series that this selects.
    pub(crate) async fn label_values(
        &self,
        label: &str,
        selector: &str,
    ) -> Result<BTreeSet<String>, Box<dyn Error>> {
        let path = format!("/api/v1/label/{label}/values?match[]={}", escaped(selector));
        let values = self.get(&path).await?;
        let values = list(&values).iter().filter_map(Value::as_str);
        Ok(values.map(str::to_owned).collect())
    }

    /// The labels that any series of this name has.
    pub(crate) async fn labels(&self, name: &str) -> Result<BTreeSet<String>, Box<dyn Error>> {
        let path = format!("/api/v1/labels?match[]={}", escaped(name));
        let labels = self.get(&path).await?;
        let labels = list(&labels).iter().filter_map(Value::as_str);
        Ok(labels.map(str::to_owned).collect())
    }

    /// The type and the help of each metric, by its name.
    pub(crate) async fn metadata(
        &self,
    ) -> Result<BTreeMap<String, (String, String)>, Box<dyn Error>> {
        let data = self.get("/api/v1/metadata").await?;
        let metrics = data.as_object().ok_or("no metadata")?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metrics = metrics.iter().map(|(name, about)| {
            let about = &about[0];
            (name.clone(), (text(&about["type"]), text(&about["help"])))
        });
        Ok(metrics.collect())
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> Result<(), Box<dyn Error>> {
        drop(self.input);
        timeout(PATIENCE, self.child.wait()).await??;
        Ok(())
    }

    async fn get(&self, path: &str) -> Result<Value, Box<dyn Error>> {
        let mut answer = self.api.get(path).await?;
        Ok(answer["data"].take())
    }
}

fn each<T>(
    result: &Value,
    read: impl Fn(&Value) -> Result<T, Box<dyn Error>>,
) -> Result<Vec<Series<T>>, Box<dyn Error>> {
    let series = list(result).iter().map(|series| {
        let labels = series["metric"]
            .as_object()
            .ok_or("a series without labels")?;
        let labels = labels
            .iter()
            .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
        let labels = labels.filter(|(key, _)| key != "__name__");
        Ok((labels.collect(), read(series)?))
    });
    series.collect()
}

/// A pair of a time and a text.
fn value(pair: &Value) -> Result<f64, Box<dyn Error>> {
    Ok(pair[1].as_str().ok_or("no value")?.parse()?)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}
