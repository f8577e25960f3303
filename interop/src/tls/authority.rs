//! A certificate authority, and what it issues.

use std::error::Error;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tonic::transport::{Certificate, Identity};

/// An authority of its own: nobody else trusts it.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in PEM.
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Self, Box<dyn Error>> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new(Vec::new())?;
        // Of two with one name the other's signature would be wrong, and not its issuer unknown.
        parameters.distinguished_name.push(
            DnType::CommonName,
            format!("authority {:x}", fastrand::u64(..)),
        );
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key)?.pem();
        Ok(Self {
            issuer: Issuer::new(parameters, key),
            pem,
        })
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    pub(crate) fn certificate(&self) -> Certificate {
        Certificate::from_pem(&self.pem)
    }

    /// For a host, or for a client.
    pub(crate) fn issue(&self, name: &str) -> Result<Issued, Box<dyn Error>> {
        self.sign(CertificateParams::new(vec![name.to_owned()])?)
    }

    /// For a host, until some day that is long past.
    pub(crate) fn issue_expired(&self, name: &str) -> Result<Issued, Box<dyn Error>> {
        let mut parameters = CertificateParams::new(vec![name.to_owned()])?;
        parameters.not_before = date_time_ymd(2020, 1, 1);
        parameters.not_after = date_time_ymd(2020, 2, 1);
        self.sign(parameters)
    }

    fn sign(&self, parameters: CertificateParams) -> Result<Issued, Box<dyn Error>> {
        let key = KeyPair::generate()?;
        Ok(Issued {
            certificate: parameters.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
        })
    }
}

impl Issued {
    pub(crate) fn identity(&self) -> Identity {
        Identity::from_pem(&self.certificate, &self.key)
    }
}
