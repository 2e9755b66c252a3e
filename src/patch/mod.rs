//! Declarative patches: definition, application, receipt, verification.
